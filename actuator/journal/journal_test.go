package journal_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
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

// A folder that its owner may not write is put aside, and its holds are taken over.
func TestRecordWithoutRights(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("root may write everywhere")
	}
	dir := t.TempDir()
	j, err := journal.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(j.Put(record.Hold{ContainerID: "a", Reason: "r"}), os.Chmod(filepath.Join(dir, "holds"), 0o500)); err != nil {
		t.Fatal(err)
	}
	if j, err = journal.Open(dir); err != nil || j.Trouble() == nil {
		t.Fatal(err)
	}
	if h, ok, err := j.Get("a"); !ok || err != nil || h.Reason != "r" {
		t.Errorf("%+v %v %v", h, ok, err)
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
