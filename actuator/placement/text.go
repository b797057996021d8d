package placement

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/laxity/laxity/exporter/task"
)

// Summary says in one line how many nodes can take the container and why the
// others cannot, most frequent reason first: "0/5 nodes: 2 GPU memory short
// (need 20GiB, free 12GiB), 1 stale 95s". A node counts once, with its first
// reason; the text is that of the first node by name.
func (r Ranking) Summary() string {
	type group struct {
		code  Code
		text  string
		count int
	}
	var groups []group
	candidates := 0
	for _, v := range r {
		if v.Candidate() {
			candidates++
			continue
		}
		first := v.Reasons[0]
		i := slices.IndexFunc(groups, func(g group) bool { return g.code == first.Code })
		if i < 0 {
			groups = append(groups, group{first.Code, first.Text, 1})
			continue
		}
		groups[i].count++
	}
	slices.SortStableFunc(groups, func(a, b group) int { return b.count - a.count })
	parts := make([]string, 0, len(groups))
	for _, g := range groups {
		parts = append(parts, strconv.Itoa(g.count)+" "+g.text)
	}
	head := fmt.Sprintf("%d/%d nodes", candidates, len(r))
	if len(parts) == 0 {
		return head
	}
	return head + ": " + strings.Join(parts, ", ")
}

func staleness(n Node, now time.Time) Reason {
	if n.Seen.IsZero() {
		return Reason{Code: Stale, Text: "stale"}
	}
	age := now.Sub(n.Seen)
	if age < 2*time.Second {
		// The exporter answers, so it is its device, or its snapshot.
		return Reason{Code: Stale, Text: "stale (its GPU driver does not answer)"}
	}
	return Reason{Code: Stale, Text: "stale " + span(age)}
}

func floatShort(deadline, float task.Seconds) string {
	return "float short (deadline " + span(deadline.Duration()) + ", float " + span(float.Duration()) + ")"
}

func memoryShort(g *GPU, need uint64) string {
	if g.MemoryTotal > 0 && need > g.MemoryTotal {
		return "GPU memory short (need " + Bytes(need) + ", the GPU has " + Bytes(g.MemoryTotal) + ")"
	}
	free := Bytes(g.MemoryFree)
	if g.Reserved > 0 {
		free += " − " + Bytes(g.Reserved) + " reserved"
	}
	return "GPU memory short (need " + Bytes(need) + ", free " + free + ")"
}

func workBefore(req Request, before, need task.Seconds) string {
	text := "time short (due in " + span(req.Deadline.Duration()) + ", needs " + needs(req, need)
	if before > 0 {
		text += " after " + span(before.Duration()) + " of work that is due earlier"
	}
	return text + ")"
}

func wouldMiss(w Work, slack, need task.Seconds) string {
	return w.Container + " would miss its deadline (has " + span(slack.Duration()) + " to spare, the new task needs " + span(need.Duration()) + ")"
}

// needs says where a need comes from.
func needs(req Request, need task.Seconds) string {
	if req.Estimate <= 0 {
		return "up to " + span(need.Duration()) // no estimate
	}
	return span(need.Duration())
}

func memoryFull(g *GPU) string { return "GPU memory full (free " + Bytes(g.MemoryFree) + ")" }

// span is a duration with the precision that people compare: tenths of a second
// below 10 s, whole seconds from there on.
func span(d time.Duration) string {
	if d.Abs() < 10*time.Second {
		return strconv.FormatFloat(d.Round(100*time.Millisecond).Seconds(), 'f', -1, 64) + "s"
	}
	return strconv.FormatFloat(d.Round(time.Second).Seconds(), 'f', -1, 64) + "s"
}

// Bytes writes a size in the largest binary unit that leaves at least 1, with
// one decimal where it says something: 12GiB, 1.5GiB.
func Bytes(n uint64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB"}
	v, i := float64(n), 0
	for v >= 1024 && i < len(units)-1 {
		v /= 1024
		i++
	}
	return strings.TrimSuffix(strconv.FormatFloat(v, 'f', 1, 64), ".0") + units[i]
}
