package store_test

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/laxity/laxity/exporter/task"
	"github.com/laxity/laxity/exporter/tracker/core"
	"github.com/laxity/laxity/exporter/tracker/store"
)

var t0 = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func open(t *testing.T, dir string) *store.File {
	t.Helper()
	f, aside, err := store.Open(dir)
	if err != nil || aside != nil {
		t.Fatal(err, aside)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func load(t *testing.T, f *store.File) core.State {
	t.Helper()
	s, err := f.Load()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func unfinished(id string) core.Saved {
	return core.Saved{Identity: "boot/1", Used: []string{"GPU-a"},
		Task: task.Task{ID: id, PID: 1, State: task.Running, Start: task.Mark{Time: t0, Source: task.SourceUprobe}, Deadline: t0.Add(time.Second)}}
}

func finished(id string) task.Task {
	return task.Task{ID: id, State: task.Ended, Start: task.Mark{Time: t0}, End: &task.Mark{Time: t0.Add(time.Second), Source: task.SourcePidfd}}
}

func TestSaveAndLoad(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "deep", "state")
	f := open(t, dir)
	if s := load(t, f); len(s.Open)+len(s.Ended)+len(s.Overrides) != 0 {
		t.Errorf("a new store holds %+v", s)
	}
	save := func(c core.Changes) {
		t.Helper()
		if err := f.Save(c, t0); err != nil {
			t.Fatal(err)
		}
	}
	five := &core.Override{Deadline: 5, Share: 0.3, Set: t0}
	save(core.Changes{
		Open:      map[string]core.Saved{"1": unfinished("1"), "2": unfinished("2")},
		Ended:     map[string]task.Task{"0": finished("0")},
		Overrides: map[string]*core.Override{"c": five, "d": five},
		IdleWatts: map[string]float64{"GPU-a": 75, "GPU-b": 60},
	})
	save(core.Changes{
		Ended:     map[string]task.Task{"1": finished("1")}, // closes the open one
		Dropped:   []string{"0"},
		Overrides: map[string]*core.Override{"d": nil},
		IdleWatts: map[string]float64{"GPU-a": 80},
	})
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	got := load(t, open(t, dir))
	want := core.State{
		Open:      []core.Saved{unfinished("2")},
		Ended:     []task.Task{finished("1")},
		Overrides: map[string]core.Override{"c": *five},
		IdleWatts: map[string]float64{"GPU-a": 80, "GPU-b": 60},
		Alive:     t0,
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("loaded %+v\nwant   %+v", got, want)
	}
}

func TestDamagedFileIsMovedAside(t *testing.T) {
	for name, content := range map[string]string{
		"text":    "this is no database",
		"zeros":   strings.Repeat("\x00", 1<<16),
		"garbage": strings.Repeat("\xde\xad\xbe\xef", 1<<14),
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "tasks.db")
			if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
			f, aside, err := store.Open(dir)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			if aside == nil || !strings.Contains(aside.Error(), ".damaged-") {
				t.Errorf("nothing says that the file was moved: %v", aside)
			}
			if kept, err := filepath.Glob(path + ".damaged-*"); err != nil || len(kept) != 1 {
				t.Error("what was there is lost:", kept, err)
			}
		})
	}
}

func TestTwoExportersOnOneFolder(t *testing.T) {
	dir := t.TempDir()
	open(t, dir)
	_, _, err := store.Open(dir)
	if err == nil || !strings.Contains(err.Error(), "--state-dir") {
		t.Errorf("error %v, want one that says what to do", err)
	}
}

func TestNoFolder(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := store.Open(filepath.Join(file, "state")); err == nil || !strings.Contains(err.Error(), "--state-dir") {
		t.Errorf("error %v, want one that says what to do", err)
	}
}
