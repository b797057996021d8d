package boltfile_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"go.etcd.io/bbolt"

	"github.com/laxity/laxity/internal/aside"
	"github.com/laxity/laxity/internal/boltfile"
)

var bucket = []byte("b")

func prepare(tx *bbolt.Tx) error {
	b, err := tx.CreateBucketIfNotExists(bucket)
	if err != nil {
		return err
	}
	return b.ForEach(func(_, v []byte) error {
		if bytes.Equal(v, []byte("refused")) {
			return errors.New("refused")
		}
		return nil
	})
}

// full makes a file of many pages, and returns its content.
func full(t testing.TB, path string, value string) []byte {
	t.Helper()
	db, damaged, err := boltfile.Open(path, prepare)
	if err != nil || damaged != nil {
		t.Fatal(damaged, err)
	}
	err = db.Update(func(tx *bbolt.Tx) error {
		for i := range 500 {
			if err := tx.Bucket(bucket).Put(fmt.Appendf(nil, "key %04d", i), bytes.Repeat([]byte("v"), 200)); err != nil {
				return err
			}
		}
		return tx.Bucket(bucket).Put([]byte("last"), []byte(value))
	})
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// usable checks that the file can be written, and is not used twice.
func usable(t testing.TB, path string) (damaged error) {
	t.Helper()
	db, damaged, err := boltfile.Open(path, prepare)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if err := db.Update(func(tx *bbolt.Tx) error { return tx.Bucket(bucket).Put([]byte("k"), []byte("v")) }); err != nil {
		t.Fatal(err)
	}
	return damaged
}

func TestGoodFileIsKept(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.db")
	full(t, path, "fine")
	if damaged := usable(t, path); damaged != nil {
		t.Error(damaged)
	}
	if names := aside.List(filepath.Dir(path)); len(names) > 0 {
		t.Error(names)
	}
}

func TestDamagedFileIsPutAside(t *testing.T) {
	for name, damage := range map[string]func(t *testing.T, path string, data []byte) error{
		"garbage": func(_ *testing.T, path string, _ []byte) error {
			return os.WriteFile(path, bytes.Repeat([]byte("x"), 9000), 0o600)
		},
		"one byte":    func(_ *testing.T, path string, _ []byte) error { return os.WriteFile(path, []byte("x"), 0o600) },
		"two pages":   func(_ *testing.T, path string, _ []byte) error { return os.Truncate(path, 8192) },
		"cut in half": func(_ *testing.T, path string, data []byte) error { return os.Truncate(path, int64(len(data)/2)) },
		"zeroes behind the first pages": func(_ *testing.T, path string, data []byte) error {
			return os.WriteFile(path, append(bytes.Clone(data[:8192]), make([]byte, len(data)-8192)...), 0o600)
		},
		"another version": func(_ *testing.T, path string, data []byte) error {
			data[16+4], data[4096+16+4] = 99, 99
			return os.WriteFile(path, data, 0o600)
		},
		"a folder in its place": func(_ *testing.T, path string, _ []byte) error {
			return errors.Join(os.Remove(path), os.Mkdir(path, 0o700))
		},
		"refused": func(t *testing.T, path string, _ []byte) error {
			if err := os.Remove(path); err != nil {
				return err
			}
			full(t, path, "refused")
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "x.db")
			data := full(t, path, "fine")
			if err := damage(t, path, data); err != nil {
				t.Fatal(err)
			}
			damaged := usable(t, path)
			var d *aside.Damaged
			if !errors.As(damaged, &d) || !strings.Contains(damaged.Error(), "put aside as x.db.damaged-") {
				t.Fatalf("told %v", damaged)
			}
			if _, err := os.Lstat(d.To); err != nil {
				t.Error("what was there is lost:", err)
			}
			if damaged := usable(t, path); damaged != nil {
				t.Error("the next start:", damaged)
			}
		})
	}
}

// An error of the system says nothing about the file: the same file opens once that has passed.
func TestRefusalOfTheSystemIsNoDamage(t *testing.T) {
	for _, errno := range []syscall.Errno{
		syscall.EACCES, syscall.EPERM, syscall.EROFS, syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM, syscall.ENOSPC, syscall.EDQUOT, syscall.EIO,
	} {
		for where, try := range map[string]func(path string) (error, error){
			"open": func(path string) (error, error) {
				defer boltfile.SetOpenFile(func(path string, _ int, _ os.FileMode) (*os.File, error) {
					return nil, &os.PathError{Op: "open", Path: path, Err: errno}
				})()
				_, damaged, err := boltfile.Open(path, prepare)
				return damaged, err
			},
			"write": func(path string) (error, error) {
				_, damaged, err := boltfile.Open(path, func(*bbolt.Tx) error { return &os.PathError{Op: "write", Path: path, Err: errno} })
				return damaged, err
			},
			"grow, of which bbolt keeps the text": func(path string) (error, error) {
				_, damaged, err := boltfile.Open(path, func(*bbolt.Tx) error { return errors.New("file resize error: truncate " + path + ": " + errno.Error()) })
				return damaged, err
			},
		} {
			t.Run(errno.Error()+", "+where, func(t *testing.T) {
				path := filepath.Join(t.TempDir(), "x.db")
				before := full(t, path, "fine")
				damaged, err := try(path)
				if damaged != nil || err == nil || !strings.Contains(err.Error(), errno.Error()) || !strings.Contains(err.Error(), path) {
					t.Errorf("told %v, %v", damaged, err)
				}
				if now, err := os.ReadFile(path); err != nil || !bytes.Equal(now, before) || len(aside.List(filepath.Dir(path))) > 0 {
					t.Errorf("the file has changed: %v, %v", err, aside.List(filepath.Dir(path)))
				}
				if damaged := usable(t, path); damaged != nil {
					t.Error("the next start:", damaged)
				}
			})
		}
	}
}

func TestInUseIsNoDamage(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.db")
	db, _, err := boltfile.Open(path, prepare)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, _, err := boltfile.Open(path, prepare); !errors.Is(err, boltfile.ErrInUse) {
		t.Errorf("got %v", err)
	}
}

// Whatever bytes are other ones, the file opens, or is put aside and a new one opens.
func TestAnyDamage(t *testing.T) {
	if race {
		t.Skip("the race detector cannot look at pointers in a damaged file")
	}
	dir := t.TempDir()
	path := filepath.Join(dir, "x.db")
	good := full(t, path, "fine")
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // not a secret
	for range 100 {
		bad := bytes.Clone(good)
		for range 1 + r.IntN(20) {
			bad[r.IntN(len(bad))] = byte(r.Uint32())
		}
		if r.IntN(3) == 0 { // where it hurts most: heads of pages
			page := r.IntN(len(bad) / 4096)
			for i := range 16 {
				bad[page*4096+i] = byte(r.Uint32())
			}
		}
		if r.IntN(3) == 0 {
			bad = bad[:r.IntN(len(bad))]
		}
		if err := os.WriteFile(path, bad, 0o600); err != nil {
			t.Fatal(err)
		}
		usable(t, path)
	}
}
