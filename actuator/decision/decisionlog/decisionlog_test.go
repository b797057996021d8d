package decisionlog_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/laxity/laxity/actuator/decision"
	"github.com/laxity/laxity/actuator/decision/decisionlog"
)

func TestLog(t *testing.T) {
	path := filepath.Join(t.TempDir(), "decisions.jsonl")
	var text bytes.Buffer
	l, err := decisionlog.Open(decisionlog.Options{Path: path, Keep: 3, MaxBytes: 300, Logger: slog.New(slog.NewTextHandler(&text, nil))})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	l.Add(decision.Decision{Reason: "before"})
	watch := l.Watch(ctx, 0)
	if d := <-watch; d.Reason != "before" || d.Sequence != 1 {
		t.Errorf("%+v", d)
	}
	for range 9 {
		l.Add(decision.Decision{Kind: decision.Pause, Result: decision.Done, Reason: "because"})
		if d := <-watch; d.Reason != "because" {
			t.Errorf("%+v", d)
		}
	}
	cancel()
	if _, open := <-watch; open {
		t.Error("the watch goes on")
	}
	kept, _ := l.Last(0)
	if len(kept) != 3 || kept[0].Sequence != 8 || kept[2].Sequence != 10 {
		t.Errorf("kept %+v", kept)
	}
	if newer, _ := l.Last(9); len(newer) != 1 {
		t.Errorf("newer %+v", newer)
	}
	if text.Len() > 0 {
		t.Error(&text)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	l.Add(decision.Decision{}) // harmless

	var last uint64
	for _, name := range []string{path + ".1", path} {
		f, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if info, _ := f.Stat(); info.Size() > 300 {
			t.Errorf("%s has %d bytes", name, info.Size())
		}
		for s := bufio.NewScanner(f); s.Scan(); {
			var d decision.Decision
			if err := json.Unmarshal(s.Bytes(), &d); err != nil || d.Sequence < last {
				t.Errorf("%s: %v", s.Text(), err)
			}
			last = d.Sequence
		}
	}
	if last != 10 {
		t.Errorf("the last in the file is %d", last)
	}
}

func TestFileThatCannotBeWritten(t *testing.T) {
	dir := t.TempDir()
	if _, err := decisionlog.Open(decisionlog.Options{Path: filepath.Join(dir, "no", "where")}); err == nil {
		t.Error("no error")
	}
	var text bytes.Buffer
	l, err := decisionlog.Open(decisionlog.Options{Path: filepath.Join(dir, "d"), MaxBytes: 1, Logger: slog.New(slog.NewTextHandler(&text, nil))})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		l.Add(decision.Decision{})
	}
	if n := strings.Count(text.String(), "decisions are not on disk"); n != 1 {
		t.Errorf("it is said %d times: %s", n, &text)
	}
	if kept, _ := l.Last(0); len(kept) != 2 {
		t.Error("decisions are lost")
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	l.Add(decision.Decision{})
	if !strings.Contains(text.String(), "on disk again") {
		t.Errorf("it is not said that the file is written again: %s", &text)
	}
}
