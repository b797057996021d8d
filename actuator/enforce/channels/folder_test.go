package channels_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/laxity/laxity/actuator/enforce/channels"
)

func TestFolderGoesWithItsLastRecord(t *testing.T) {
	dir := channels.Folder(t.TempDir(), "state")
	r := newRigIn(t, dir, channels.Options{})
	a, b := r.Start(1, gpuNames[0]), r.Start(2, gpuNames[0])
	there := func(want bool) {
		t.Helper()
		if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) == want {
			t.Fatalf("the folder is there: %v, want %v", err == nil, want)
		}
	}
	apply := func(s channels.Standing) {
		t.Helper()
		_, err := r.Apply(t.Context(), target(a), s)
		check(t, err, nil)
	}
	for range 2 { // it comes again
		apply(takeOff)
		_, err := r.Apply(t.Context(), target(b), takeOff)
		check(t, err, nil)
		there(true)
		apply(channels.Standing{})
		there(true) // the other one's record is in it
		// What a writer that died left half-written keeps nothing.
		check(t, os.WriteFile(filepath.Join(dir, "3-3.json.tmp"), nil, 0o600), nil)
		_, err = r.RestoreAll(t.Context())
		check(t, err, nil)
		there(false)
		if _, err := os.Stat(filepath.Dir(dir)); err != nil {
			t.Fatal(err) // other actuators' folders lie there
		}
	}
}

// The folder comes and goes while others wait for a lock in it: they never have the same
// one at once.
func TestLockInAFolderThatGoes(t *testing.T) {
	dir := channels.Folder(t.TempDir(), "state")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var (
		wait   sync.WaitGroup
		inside [2]atomic.Int32
	)
	for i := range 6 {
		r := newRigIn(t, dir, channels.Options{}) // another program
		wait.Go(func() {
			for range 300 {
				unlock, err := r.Lock(ctx, i%2)
				if err != nil {
					t.Error(err)
					return
				}
				if n := inside[i%2].Add(1); n != 1 {
					t.Errorf("%d have the lock of one process", n)
				}
				for range 100 { // let others come
					runtime.Gosched()
				}
				inside[i%2].Add(-1)
				unlock()
			}
		})
	}
	wait.Wait()
	unlock, err := newRigIn(t, dir, channels.Options{}).Lock(ctx, 0)
	check(t, err, nil)
	unlock() // two that unlock last at once leave the folder to the next one
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the folder is left: %v", err)
	}
}
