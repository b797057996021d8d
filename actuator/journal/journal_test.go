package journal_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/laxity/laxity/actuator/journal"
	"github.com/laxity/laxity/actuator/journal/journaltest"
	"github.com/laxity/laxity/actuator/record"
)

func TestJournal(t *testing.T) {
	dir := t.TempDir()
	j, err := journal.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now().Truncate(time.Microsecond)
	for i, id := range []string{"bb", "aa"} {
		if err := j.Put(record.Hold{ContainerID: id, Reason: "r", Since: now.Add(time.Duration(i) * time.Second)}); err != nil {
			t.Fatal(err)
		}
	}
	h, ok, err := j.Get("bb")
	if err != nil || !ok || h.Reason != "r" || !h.Since.Equal(now) {
		t.Errorf("got %+v %v %v", h, ok, err)
	}
	j, _ = journal.Open(dir) // as another process sees it
	if err := os.WriteFile(filepath.Join(dir, "holds", ".tmp-1"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "holds", "torn.json"), []byte(`{"container_id":`), 0o600); err != nil {
		t.Fatal(err)
	}
	holds, err := j.List()
	if err != nil || len(holds) != 3 || holds[0].ContainerID != "torn" || holds[1].ContainerID != "bb" || holds[2].ContainerID != "aa" {
		t.Errorf("list %+v %v", holds, err)
	}
	for _, id := range []string{"aa", "bb", "torn", "never"} {
		if err := j.Remove(id); err != nil {
			t.Error(err)
		}
	}
	if holds, err := j.List(); err != nil || len(holds) > 0 {
		t.Errorf("list %+v %v", holds, err)
	}
}

func TestRenew(t *testing.T) {
	j, err := journal.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now().Round(0).UTC()
	h := record.Hold{ContainerID: "a", Since: now, Expires: now}
	if renewed, err := j.Renew(h); renewed || err != nil {
		t.Errorf("what was never on record is renewed: %v %v", renewed, err)
	}
	if err := j.Put(h); err != nil {
		t.Fatal(err)
	}
	h.Expires = now.Add(time.Minute)
	if renewed, err := j.Renew(h); !renewed || err != nil {
		t.Errorf("renew: %v %v", renewed, err)
	}
	if got, ok, err := j.Get("a"); !ok || err != nil || !got.Expires.Equal(h.Expires) {
		t.Errorf("on record: %+v %v %v", got, ok, err)
	}
	// A removal at the same moment prevails.
	for range 50 {
		if err := j.Put(h); err != nil {
			t.Fatal(err)
		}
		var both sync.WaitGroup
		both.Go(func() {
			if _, err := j.Renew(h); err != nil {
				t.Error(err)
			}
		})
		both.Go(func() {
			if err := j.Remove("a"); err != nil {
				t.Error(err)
			}
		})
		both.Wait()
		if list, err := j.List(); len(list) > 0 || err != nil {
			t.Fatalf("on record after its removal: %+v %v", list, err)
		}
	}
}

func TestIDsCannotLeaveTheFolder(t *testing.T) {
	j, _ := journal.Open(t.TempDir())
	for _, id := range []string{"", "../x", "a/b", ".hidden", strings.Repeat("a", 200)} {
		if err := j.Put(record.Hold{ContainerID: id}); err == nil {
			t.Errorf("%q was taken", id)
		}
	}
}

func TestOpenSaysWhatToDo(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := journal.Open(file); err == nil || !strings.Contains(err.Error(), "--state-dir") {
		t.Errorf("error %v", err)
	}
}

func TestFileInPlaceOfTheRecord(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "holds"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	j, err := journal.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	if trouble := j.Trouble(); trouble == nil || !strings.Contains(trouble.Error(), "put aside as holds.damaged-") {
		t.Errorf("told %v", trouble)
	}
	if err := j.Put(record.Hold{ContainerID: "a"}); err != nil {
		t.Error(err)
	}
	if j, err = journal.Open(dir); err != nil || j.Trouble() != nil {
		t.Errorf("the next start: %v %v", err, j.Trouble())
	}
}

// A folder that cannot be written, as root knows it: it is mounted so, and cannot be put aside.
func TestRecordThatCannotBeWritten(t *testing.T) {
	dir := t.TempDir()
	j, err := journal.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := j.Put(record.Hold{ContainerID: "a", Reason: "r"}); err != nil {
		t.Fatal(err)
	}
	journaltest.ReadOnly(t, filepath.Join(dir, "holds"))
	if j, err = journal.Open(dir); err != nil {
		t.Fatal("it keeps somebody from starting:", err)
	}
	if trouble := j.Trouble(); !errors.Is(trouble, journal.ErrNotWritable) {
		t.Errorf("told %v", trouble)
	}
	if holds, err := j.List(); err != nil || len(holds) != 1 || holds[0].Reason != "r" {
		t.Errorf("%v %v", holds, err)
	}
	if err := j.Remove("a"); !errors.Is(err, journal.ErrNotWritable) {
		t.Errorf("removed: %v", err)
	}
	if err := j.Put(record.Hold{ContainerID: "b"}); err == nil {
		t.Error("put on record")
	}
}

// A folder that its owner may not write stays where it is, and its holds on record.
func TestRecordWithoutRights(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("root may write everywhere")
	}
	dir := t.TempDir()
	j, err := journal.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	holds := filepath.Join(dir, "holds")
	if err := errors.Join(j.Put(record.Hold{ContainerID: "a", Reason: "r"}), os.Chmod(holds, 0o500)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Chmod(holds, 0o700) })
	if j, err = journal.Open(dir); err != nil || !errors.Is(j.Trouble(), journal.ErrNotWritable) {
		t.Fatal(err)
	}
	if h, ok, err := j.Get("a"); !ok || err != nil || h.Reason != "r" {
		t.Errorf("%+v %v %v", h, ok, err)
	}
}

// Where the disk is full, the record stays where all who use it find it, and can be removed.
func TestFullDiskKeepsTheRecord(t *testing.T) {
	dir := t.TempDir()
	fill := journaltest.SmallDisk(t, dir)
	before, err := journal.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"a", "b"} {
		if err := before.Put(record.Hold{ContainerID: id, Reason: "r"}); err != nil {
			t.Fatal(err)
		}
	}
	free := fill()
	during, err := journal.Open(dir)
	if err != nil {
		t.Fatal("it keeps somebody from releasing:", err)
	}
	if trouble := during.Trouble(); !errors.Is(trouble, journal.ErrNotWritable) || !errors.Is(trouble, syscall.ENOSPC) {
		t.Errorf("told %v", trouble)
	}
	for who, j := range map[string]*journal.Journal{"opened before": before, "opened now": during} {
		if holds, err := j.List(); err != nil || len(holds) != 2 || holds[0].Reason != "r" {
			t.Errorf("%s: %v %v", who, holds, err)
		}
	}
	if err := during.Remove("b"); err != nil {
		t.Error(err)
	}
	free()
	after, err := journal.Open(dir)
	if err != nil || after.Trouble() != nil {
		t.Fatal(err, after.Trouble())
	}
	if holds, err := after.List(); err != nil || len(holds) != 1 || holds[0].ContainerID != "a" {
		t.Errorf("when there is room: %v %v", holds, err)
	}
	if err := after.Put(record.Hold{ContainerID: "c"}); err != nil {
		t.Error(err)
	}
}

// Holds in folders that were put aside are on record again, once: a container may be paused by a
// person after its release.
func TestHoldsThatWerePutAside(t *testing.T) {
	dir := t.TempDir()
	j, err := journal.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(j.Put(record.Hold{ContainerID: "a", Reason: "aside"}), j.Put(record.Hold{ContainerID: "b", Reason: "aside"}),
		os.WriteFile(filepath.Join(dir, "holds", "torn.json"), []byte("{"), 0o600),
		os.Rename(filepath.Join(dir, "holds"), filepath.Join(dir, "holds.damaged-20260102T030405.000Z"))); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Mkdir(filepath.Join(dir, "holds"), 0o700), j.Put(record.Hold{ContainerID: "b", Reason: "newer"})); err != nil {
		t.Fatal(err)
	}
	if j, err = journal.Open(dir); err != nil || j.Trouble() != nil {
		t.Fatal(err, j.Trouble())
	}
	for id, reason := range map[string]string{"a": "aside", "b": "newer"} {
		if h, ok, err := j.Get(id); !ok || err != nil || h.Reason != reason {
			t.Errorf("%s: %+v %v %v", id, h, ok, err)
		}
	}
	if holds, err := j.List(); err != nil || len(holds) != 3 {
		t.Errorf("%v %v", holds, err)
	}
	for _, id := range []string{"a", "b", "torn"} {
		if err := j.Remove(id); err != nil {
			t.Error(err)
		}
	}
	if j, err = journal.Open(dir); err != nil || j.Trouble() != nil {
		t.Fatal(err, j.Trouble())
	}
	if holds, err := j.List(); err != nil || len(holds) > 0 {
		t.Errorf("released, and on record again: %v %v", holds, err)
	}
}

// No freeze survives a boot: if a container is paused after it, a person did that, or a hold that is
// on record.
func TestHoldsThatWerePutAsideBeforeTheBoot(t *testing.T) {
	booted := time.Now().Add(-10 * time.Hour)
	for name, tt := range map[string]struct {
		since time.Time // of the record; zero: it cannot be read
		file  time.Time // its file's time
		kept  bool
	}{
		"before":                    {since: booted.Add(-24 * time.Hour), file: booted.Add(-23 * time.Hour)},
		"before, if clocks agree":   {since: booted.Add(-30 * time.Minute), file: booted.Add(-30 * time.Minute), kept: true},
		"after, and long ago":       {since: booted.Add(time.Hour), file: booted.Add(time.Hour), kept: true},
		"unreadable, from before":   {file: booted.Add(-24 * time.Hour)},
		"unreadable, from after":    {file: booted.Add(time.Hour), kept: true},
		"copied after, from before": {since: booted.Add(-24 * time.Hour), file: booted.Add(time.Hour)},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			aside := filepath.Join(dir, "holds.damaged-20260102T030405.000Z", "a.json")
			text := []byte("{")
			if !tt.since.IsZero() {
				text, _ = json.Marshal(record.Hold{ContainerID: "a", Since: tt.since})
			}
			if err := errors.Join(os.Mkdir(filepath.Dir(aside), 0o700), os.WriteFile(aside, text, 0o600), os.Chtimes(aside, tt.file, tt.file)); err != nil {
				t.Fatal(err)
			}
			j, err := journal.OpenBooted(dir, booted)
			if err != nil || j.Trouble() != nil {
				t.Fatal(err, j.Trouble())
			}
			if holds, err := j.List(); err != nil || len(holds) > 0 != tt.kept {
				t.Errorf("on record: %v, %v; want one: %v", holds, err, tt.kept)
			}
			if _, err := os.Lstat(aside); err == nil {
				t.Error("it stays where it was put aside")
			}
		})
	}
}

// A folder whose records cannot be listed is put aside, and read as soon as that is possible.
func TestFolderThatCannotBeListed(t *testing.T) {
	dir, elsewhere := t.TempDir(), filepath.Join(t.TempDir(), "mount")
	if err := os.Symlink(elsewhere, filepath.Join(dir, "holds")); err != nil {
		t.Fatal(err)
	}
	j, err := journal.Open(dir)
	if err != nil || j.Trouble() == nil {
		t.Fatal(err, "told nothing")
	}
	if err := errors.Join(j.Put(record.Hold{ContainerID: "now"}), os.Mkdir(elsewhere, 0o700),
		os.WriteFile(filepath.Join(elsewhere, "then.json"), []byte(`{"container_id":"then"}`), 0o600)); err != nil {
		t.Fatal(err)
	}
	if j, err = journal.Open(dir); err != nil || j.Trouble() != nil {
		t.Fatal(err, j.Trouble())
	}
	if holds, err := j.List(); err != nil || len(holds) != 2 {
		t.Errorf("%v %v", holds, err)
	}
}

func TestLocks(t *testing.T) {
	path := journal.ActuatorLock(t.TempDir())
	if journal.Taken(path) {
		t.Error("taken by nobody")
	}
	l, err := journal.TryLock(path)
	if err != nil {
		t.Fatal(err)
	}
	if !journal.Taken(path) {
		t.Error("not taken")
	}
	if _, err := journal.LockWithin(context.Background(), path, 30*time.Millisecond); !errors.Is(err, journal.ErrLocked) {
		t.Errorf("error %v", err)
	}
	got := make(chan *journal.Lock)
	go func() {
		w, _ := journal.Wait(context.Background(), path)
		got <- w
	}()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := journal.Wait(ctx, path); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	l.Unlock()
	l.Unlock() // harmless
	w := <-got
	w.Unlock()
	// The wait that was given up gives the lock back when it gets it.
	again, err := journal.LockWithin(context.Background(), path, 20*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	again.Unlock()
}
