package channels_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/laxity/laxity/actuator/enforce/channels"
)

// What is no folder in the record's place, or above it, keeps nobody from starting, and stays
// for people to look at.
func TestWhatIsNoFolderIsPutAside(t *testing.T) {
	file := func(path string) error { return os.WriteFile(path, []byte("theirs"), 0o600) }
	link := func(path string) error { return os.Symlink("nowhere", path) }
	for name, tt := range map[string]struct {
		up   int
		make func(path string) error
	}{"a file": {0, file}, "a link to nothing": {0, link}, "a file above": {1, file}, "a link above": {1, link}} {
		t.Run(name, func(t *testing.T) {
			dir := channels.Folder(t.TempDir(), "state")
			place := dir
			for range tt.up {
				place = filepath.Dir(place)
			}
			check(t, os.MkdirAll(filepath.Dir(place), 0o700), nil)
			check(t, tt.make(place), nil)
			var log bytes.Buffer
			for range 2 { // guardian and actuator
				r := newRigIn(t, dir, channels.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
				p := r.Start(1, gpuNames[0])
				_, err := r.Apply(t.Context(), target(p), takeOff)
				check(t, err, nil)
				if n := r.Off(p); n == 0 {
					t.Error("nothing is off")
				}
				_, err = r.RestoreAll(t.Context())
				check(t, err, nil)
			}
			if aside := channels.PutAside(dir); len(aside) != 1 || !strings.HasPrefix(aside[0], filepath.Base(place)+".damaged-") || strings.Count(log.String(), "damaged") == 0 {
				t.Errorf("put aside: %v, and told:\n%s", aside, &log)
			}
		})
	}
}

// A record that cannot be read, whatever it is, switches its process on by its name, is put aside
// then and not before, and keeps nobody else's from being undone.
func TestDamagedRecordIsPutAsideOnceUndone(t *testing.T) {
	for name, damage := range map[string]func(path string) error{
		"cut":    func(path string) error { return os.Truncate(path, 20) },
		"empty":  func(path string) error { return os.Truncate(path, 0) },
		"folder": asFolder,
	} {
		for _, by := range []string{"undo", "sweep", "apply"} {
			t.Run(name+" "+by, func(t *testing.T) {
				dir := channels.Folder(t.TempDir(), "state")
				r := newRigIn(t, dir, channels.Options{})
				p, other := r.Start(1, gpuNames[0]), r.Start(2, gpuNames[0])
				_, err := r.Apply(t.Context(), target(p, other), takeOff)
				check(t, err, nil)
				check(t, damage(filepath.Join(dir, fmt.Sprintf("%d-%d.json", p.PID, p.Start))), nil)
				r.driver.After = once("switch")
				// A new actuator.
				again, err := channels.New(channels.Options{Driver: r.driver, Dir: dir, State: r.State, Deadline: time.Minute})
				check(t, err, nil)
				if list, err := again.Records(); len(list) != 2 || err != nil || len(channels.PutAside(dir)) > 0 {
					t.Fatalf("on record: %+v, %v", list, err)
				}
				for range 2 { // the driver fails once
					switch by {
					case "undo":
						_, _ = again.RestoreAll(t.Context())
					case "sweep":
						_, _ = again.Sweep(t.Context(), -time.Hour)
					case "apply":
						_, _ = again.Apply(t.Context(), target(p), channels.Standing{})
					}
				}
				if _, err := again.RestoreAll(t.Context()); err != nil {
					t.Error(err)
				}
				if n := r.Off(p) + r.Off(other); n > 0 {
					t.Errorf("%d channels are off", n)
				}
				if n, err := again.Pending(); n > 0 || err != nil {
					t.Errorf("%d on record, %v", n, err)
				}
				if aside := channels.PutAside(dir); len(aside) != 1 || !strings.HasPrefix(aside[0], "1-") {
					t.Errorf("put aside: %v", aside)
				}
			})
		}
	}
}

// A folder where a file is written does not keep a process from being put on record.
func TestFoldersInTheWayArePutAside(t *testing.T) {
	dir := channels.Folder(t.TempDir(), "state")
	r := newRigIn(t, dir, channels.Options{})
	p := r.Start(1, gpuNames[0])
	for _, name := range []string{"lock", fmt.Sprintf("%d-%d.json.tmp", p.PID, p.Start), fmt.Sprintf("%d-%d.json", p.PID, p.Start)} {
		check(t, asFolder(filepath.Join(dir, name)), nil)
	}
	_, err := r.Apply(t.Context(), target(p), takeOff)
	check(t, err, nil)
	check(t, r.Restore(t.Context(), p), nil)
	if aside := channels.PutAside(dir); len(aside) != 3 {
		t.Errorf("put aside: %v", aside)
	}
}

// asFolder puts a folder with something in it in the place of a file.
func asFolder(path string) error {
	if err := os.RemoveAll(path); err != nil {
		return err
	}
	return os.MkdirAll(filepath.Join(path, "in"), 0o700)
}
