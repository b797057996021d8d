package page

import (
	"fmt"
	"math"
	"os"
	"strings"
	"testing"

	"github.com/laxity/laxity/bench"
)

// What the page says in sentences, the stored results say.
func TestSentences(t *testing.T) {
	all := stored(t)
	at := func(experiment string, of measured) float64 { return of(all[experiment].Rows).at }
	near := func(what string, got, want, by float64) {
		t.Helper()
		if !(math.Abs(got-want) <= by) { // NaN is not near
			t.Errorf("%s: %v, the page says %v", what, got, want)
		}
	}
	gain := 0.0
	for _, c := range []struct {
		set      string
		n, times int
	}{{"8192", 20, 30}, {"13312", 10, 10}, {"19456", 5, 7}} { // by size
		name := "contention-" + c.set
		end := func(way string) float64 { return at(name, together{c.set, way, c.n}.runs("s", lastEnd)) }
		mean := func(way string) float64 { return at(name, together{c.set, way, c.n}.runs("s", turnaround)) }
		if end(mps) >= end(laxity) || mean(laxity) >= mean(mps) {
			t.Errorf("%s: MPS ends after %v s, ours after %v s; mean turnaround %v and %v s", name, end(mps), end(laxity), mean(mps), mean(laxity))
		}
		near("how often the product is repeated", bench.Median(bench.Column(all[name].Rows, "kernels", nil)), float64(c.times), 0)
		if against := at(name, together{c.set, p3, c.n}.loss); (against < 0) != (c.set == "13312") {
			t.Errorf("%s: p3 takes %v s more; docs/papers.md says that it gains with 13312² alone", name, against)
		}
		more := 1 - end(laxity)/(float64(c.n)*at(name, together{c.set, sliced, 1}.runs("s", lastEnd)))
		if gain > 0 && more > gain+0.005 {
			t.Errorf("the gain grows with size: %v after %v", more, gain)
		}
		gain = more
		input := together{c.set, sliced, c.n}.rows(all[name].Rows)
		if most := bench.Max(bench.Column(input, "launch_s", nil)); most < 2 || most > 5 {
			t.Errorf("%s: input takes up to %v s by default", name, most)
		}
	}
	large := all["contention-19456"].Rows
	least := bench.Quantile(eachRun(together{"19456", p3, 5}.rows(large), lastEnd), 0)
	near("the run in which the pause came in time, s", least-5*bench.Median(eachRun(together{"19456", sliced, 1}.rows(large), lastEnd)), -4.5, 0.05)
	near("least input, s", bench.Quantile(bench.Column(together{"8192", sliced, 1}.rows(all["contention-8192"].Rows), "launch_s", nil), 0), 0.5, 0.05)

	// A product of 4096² takes an eighth of one of 8192².
	product := at("contention-8192", together{"8192", sliced, 1}.tasks(kernels)) / 30 / 8
	near("kernel of an inference, ms", 1000*product, 26, 0.5)
	part := 100 * 40 * product / at("contention-inference", together{"inference", sliced, 1}.mean)
	near("of the GPU: one", part, 15, 0.5)
	near("four", 4*part, 58, 0.5)
	near("five", 5*part, 73, 0.5)
	near("the last of five by ours over that by default", at("contention-inference", together{"inference", laxity, 5}.runs("s", lastEnd))/
		at("contention-inference", together{"inference", sliced, 5}.runs("s", lastEnd)), 1, 0.01)

	near("a window of cost, s", at("cost", median(1, "s", "wall_s")), 20, 0.5)
	near("a window of growth, s", at("growth", median(1, "s", "wall_s")), 15, 0.5)
	near("free for fit, GiB", at("fit", median(1.0/(1<<30), "GiB", "free")), 5.1, 0.05)
	near("for CNNs, GiB", at("cnns", median(1.0/(1<<30), "GiB", "room")), 54, 0.5)
	if !strings.Contains(all["oversubscribe"].Older, "created within the time that counts") {
		t.Error("the page says that static's time contains the making of its containers; older.txt says so no more")
	}
	for _, set := range []string{"equal", "unequal"} {
		if ours, theirs := at("oversubscribe", untilLast(set, laxity)), at("oversubscribe", untilLast(set, static)); theirs >= ours {
			t.Errorf("%s: static ends after %v s, ours after %v s", set, theirs, ours)
		}
	}
	for nodes, want := range map[int]bool{10: false, 100: false, 1000: true, 10000: true} {
		rows := kept(all["scale"].Rows, where("way", "Prometheus", "kind", "crowded decision", "nodes", nodes))
		if found := bench.Mean(bench.Column(rows, "found", nil)) > 0.5; found != want {
			t.Errorf("%d nodes: most crowded questions named a node: %v", nodes, found)
		}
	}
}

// docs/papers.md says what the simulation of placement came to, in percent of the deadlines met.
func TestPlacementInDocs(t *testing.T) {
	text, err := os.ReadFile("../../../docs/papers.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := stored(t)["quality"].Rows
	for _, way := range []struct{ name, said string }{
		{"predictive", "| `predictive` |"}, {"paper", "| `paper`, each container removed at its task's end |"},
		{"paper, containers kept", "| `paper`, no container removed |"}, {"least-loaded", "| the GPU with the fewest tasks (`least-loaded`) |"},
	} {
		line := way.said
		for _, load := range []float64{0.3, 0.5, 0.7, 0.9, 1.1} {
			keep := func(r bench.Row) bool { return r.Str("way") == way.name && r.Num("load") == load }
			share := bench.Mean(bench.Column(rows, "hits", keep)) / bench.Mean(bench.Column(rows, "tasks", keep))
			line += fmt.Sprintf(" %.1f %% |", 100*share)
		}
		if !strings.Contains(string(text), line) {
			t.Errorf("docs/papers.md does not say %s", line)
		}
	}
}
