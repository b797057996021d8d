package rm_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/laxity/laxity/internal/rm"
	"github.com/laxity/laxity/internal/rm/rmtest"
)

// tour is what TestLiveRecord writes down on a real GPU, and what is replayed. Results
// are what must be the same again.
func tour(t *testing.T, kernel rm.Kernel, states bool, start func() (rm.Process, func())) (results []any) {
	t.Helper()
	ctx := t.Context()
	note := func(values ...any) {
		for _, v := range values {
			if err, ok := v.(error); ok {
				v = err.Error()
			}
			results = append(results, v)
		}
	}
	m := rm.New(kernel, rm.Options{Gap: 64, Timeout: patience})
	if err := m.Mark(ctx); err != nil {
		t.Fatal(err)
	}
	p, kill := start()
	groups, err := m.Find(ctx, p)
	if err != nil || len(groups) != 1 {
		t.Fatalf("groups %+v, %v", groups, err)
	}
	g := groups[0]
	note(g.String(), g.GPU, len(g.Channels))
	slice, err := m.Slice(ctx, g)
	note(slice, err, m.SetSlice(ctx, g, 10*time.Millisecond))
	slice, err = m.Slice(ctx, g)
	note(slice, err)
	for _, on := range []bool{false, true} {
		note(m.Switch(ctx, groups, on))
		if states {
			note(m.State(ctx, g))
		}
	}
	changed := g
	changed.Handle++
	if _, err = m.Slice(ctx, changed); !errors.Is(err, rm.ErrChanged) {
		t.Errorf("another handle: %v", err)
	}
	note(err)
	kill()
	if _, err = m.Find(ctx, p); !errors.Is(err, rm.ErrGone) {
		t.Errorf("after the end: %v", err)
	}
	note(err)
	return results
}

func TestReplayIsWhatWasRecorded(t *testing.T) {
	fake := rmtest.New(gpu0)
	var transcript bytes.Buffer
	record := rm.NewRecorder(fake, &transcript)
	recorded := tour(t, record, true, func() (rm.Process, func()) {
		fake.Advance(time.Second)
		p, _ := startTenant(fake, 10)
		_, _ = record.Stat(10)
		return p.ID(), p.Kill
	})
	if record.Err() != nil {
		t.Fatal(record.Err())
	}
	replay, err := rmtest.ReadTranscript(&transcript)
	if err != nil {
		t.Fatal(err)
	}
	replayed := tour(t, replay, true, func() (rm.Process, func()) { return replay.Process, func() {} })
	same(t, replayed, recorded)
}

// lines is one result a line.
func lines(results []any) string {
	var b strings.Builder
	for _, r := range results {
		fmt.Fprintf(&b, "%+v\n", r)
	}
	return b.String()
}

func same(t *testing.T, got, want []any) {
	t.Helper()
	if a, b := must(jsonOf(got)), must(jsonOf(want)); a != b {
		t.Errorf("got\n%s, want\n%s", a, b)
	}
}

// eachTranscript replays the transcripts in testdata. They were written on real GPUs, by
//
//	rm.test -test.v -test.run LiveRecord -record NAME.jsonl
//
// and NAME.want is what that test printed: the results there. State's calls are no part of
// the first one.
func eachTranscript(t *testing.T, do func(t *testing.T, name string, replay *rmtest.Replay)) {
	files, err := filepath.Glob("testdata/*.jsonl")
	if err != nil || len(files) == 0 {
		t.Fatalf("no transcripts: %v", err)
	}
	for _, name := range files {
		t.Run(filepath.Base(name), func(t *testing.T) {
			f, err := os.Open(name)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			replay, err := rmtest.ReadTranscript(f)
			if err != nil {
				t.Fatal(err)
			}
			do(t, name, replay)
		})
	}
}

func TestTranscripts(t *testing.T) {
	eachTranscript(t, func(t *testing.T, name string, replay *rmtest.Replay) {
		got := tour(t, replay, replay.Has("open gpu"), func() (rm.Process, func()) { return replay.Process, func() {} })
		want, err := os.ReadFile(strings.TrimSuffix(name, "jsonl") + "want")
		if err != nil {
			t.Fatal(err)
		}
		if text := lines(got); text != string(want) {
			t.Errorf("got\n%s, want\n%s", text, want)
		}
	})
}

// A recorded process is found again with a few calls, with the same groups.
func TestTranscriptIsFoundAgain(t *testing.T) {
	eachTranscript(t, func(t *testing.T, _ string, replay *rmtest.Replay) {
		count := &counter{Kernel: replay}
		m := rm.New(count, rm.Options{Gap: 64, Timeout: patience})
		if err := m.Mark(t.Context()); err != nil {
			t.Fatal(err)
		}
		first := must(m.Find(t.Context(), replay.Process))
		count.ioctls.Store(0)
		found(t, m, replay.Process, first...)
		if n := count.ioctls.Load(); len(first) != 1 || n > 110 {
			t.Errorf("%d groups, found again with %d ioctls", len(first), n)
		}
	})
}

func jsonOf(v any) (string, error) {
	text, err := json.MarshalIndent(v, "", " ")
	return string(text), err
}
