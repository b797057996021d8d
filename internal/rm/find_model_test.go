package rm_test

import (
	"errors"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/laxity/laxity/internal/rm"
	"github.com/laxity/laxity/internal/rm/rmtest"
)

// Wherever the counter stands and whoever is old: all groups are found in the end, nobody
// else's, and what is found stays found.
func TestFindProperties(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		fake := rmtest.New(gpu0)
		m := rm.New(fake, rm.Options{Gap: 32, SearchRate: 1_000_000, Timeout: patience})
		want := map[*rmtest.Process][]rm.Group{}
		var all []*rmtest.Process
		fd := 3
		for range rapid.IntRange(1, 10).Draw(rt, "steps") {
			switch what := rapid.SampledFrom([]string{"process", "context", "mark", "others", "find"}).Draw(rt, "what"); {
			case what == "process" || len(all) == 0:
				all = append(all, fake.Start(10+len(all)))
			case what == "context":
				fd++
				p := rapid.SampledFrom(all).Draw(rt, "of")
				want[p] = append(want[p], p.Context(p.OpenFile(fd), 0))
			case what == "mark":
				if err := m.Mark(t.Context()); err != nil {
					rt.Fatal(err)
				}
			case what == "others":
				fake.SkipClients(rapid.SampledFrom([]int{1, 300, 5000, 0x8000}).Draw(rt, "clients"))
			default:
				if _, err := m.Find(t.Context(), rapid.SampledFrom(all).Draw(rt, "of").ID()); err != nil && !errors.Is(err, rm.ErrUnfinished) {
					rt.Fatal(err)
				}
			}
			fake.Advance(rapid.SampledFrom([]time.Duration{0, time.Millisecond, time.Minute}).Draw(rt, "passes"))
		}
		for _, p := range all {
			_, results := finish(t, fake, m, p.ID())
			last := results[len(results)-1]
			if len(last) != len(want[p]) {
				rt.Fatalf("process %d: found %+v, want %+v", p.ID().PID, last, want[p])
			}
			for _, g := range want[p] {
				ok := false
				for _, got := range last {
					ok = ok || got.Client == g.Client && got.Handle == g.Handle
				}
				if !ok {
					rt.Fatalf("process %d: found %+v, want %+v", p.ID().PID, last, want[p])
				}
			}
		}
	})
}
