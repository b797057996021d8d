package strays_test

import (
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/laxity/laxity/actuator/guardian/strays"
)

func want(t *testing.T, dir string, n uint64) {
	t.Helper()
	if got, err := strays.Count(dir); got != n || err != nil {
		t.Errorf("%d, %v; want %d", got, err, n)
	}
}

func TestCountIsKept(t *testing.T) {
	dir := t.TempDir()
	want(t, dir, 0)
	for _, n := range []int{2, 0, -1, 3} {
		if err := strays.Add(dir, n); err != nil {
			t.Fatal(err)
		}
	}
	want(t, dir, 5)
}

// Several guardians may count at once for a moment: each opens the file for itself, as
// separate processes do.
func TestNoneIsLostBesideAnother(t *testing.T) {
	dir := t.TempDir()
	var wait sync.WaitGroup
	for range 20 {
		wait.Go(func() {
			for range 10 {
				if err := strays.Add(dir, 1); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wait.Wait()
	want(t, dir, 200)
}

func TestFolderThatCannotBeUsedIsTold(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := strays.Add(file, 1); err == nil {
		t.Error("it was counted nowhere")
	}
	if _, err := strays.Count(file); err == nil {
		t.Error("nobody knows how many there were")
	}
}
