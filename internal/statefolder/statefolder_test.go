package statefolder_test

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/laxity/laxity/internal/needtest"
	"github.com/laxity/laxity/internal/statefolder"
)

func of(t *testing.T, dir string) statefolder.ID {
	t.Helper()
	id, err := statefolder.Of(dir)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func TestTwoFoldersHaveTwoNames(t *testing.T) {
	dir := t.TempDir()
	a, b := of(t, filepath.Join(dir, "a")), of(t, filepath.Join(dir, "b")) // made
	if a == b || !regexp.MustCompile(`^[0-9a-f]+-[0-9a-f]+$`).MatchString(string(a)) {
		t.Errorf("%s and %s", a, b)
	}
	if again := of(t, filepath.Join(dir, "a")); again != a {
		t.Errorf("%s, before %s", again, a)
	}
	if id, err := statefolder.Of(os.DevNull); err == nil {
		t.Errorf("a device has the name %s", id)
	}
}

func TestOneFolderHasOneName(t *testing.T) {
	dir := t.TempDir()
	folder, link, bound := filepath.Join(dir, "a"), filepath.Join(dir, "link"), filepath.Join(dir, "bound")
	id := of(t, folder)
	if err := os.Symlink(folder, link); err != nil {
		t.Fatal(err)
	}
	if by := of(t, link); by != id {
		t.Errorf("by a link %s, else %s", by, id)
	}
	t.Chdir(dir)
	if by := of(t, "a"); by != id {
		t.Errorf("by a relative path %s, else %s", by, id)
	}
	t.Run("bind mount", func(t *testing.T) {
		other := of(t, bound)
		if err := unix.Mount(folder, bound, "", unix.MS_BIND, ""); err != nil {
			needtest.Root.Skip(t, "no bind mount:", err)
		}
		t.Cleanup(func() {
			if err := unix.Unmount(bound, 0); err != nil {
				t.Error(err)
			}
		})
		if by := of(t, bound); by != id || by == other {
			t.Errorf("by a bind mount %s, else %s", by, id)
		}
	})
}
