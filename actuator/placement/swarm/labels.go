package swarm

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strconv"
	"time"
)

// The labels of a swarm node that are kept. No other label is ever touched.
const (
	// LabelProvisionable is 1 while the node can take a container (P2's nodeState).
	LabelProvisionable = "laxity.provisionable"
	// LabelRank is from 10, the best, to 1; 0 when the node can take nothing.
	LabelRank = "laxity.rank"
	// LabelNode, set by a person, is the node's name in metrics where that is not
	// its host name.
	LabelNode = "laxity.node"
)

// MaxRank is the rank of the best node.
const MaxRank = 10

// sameName is why a node is not used whose facts may be another one's.
const sameName = "two nodes of this name are up: remove one of them, or give each a label " + LabelNode

// fact is what the ranking says of a node.
type fact struct {
	provisionable bool
	score         float64 // highest first
}

// member is one node of the swarm.
type member struct {
	id, name string
	up       bool // the swarm reaches it
	ready    bool // and it takes tasks
	labels   map[string]string
}

// change is what is to become of a node's labels; nil values are removed.
type change struct {
	member
	provisionable, rank *string
	why                 string
	urgency             int // lower first
}

// apply returns the node's labels with the change applied.
func (c change) apply(labels map[string]string) map[string]string {
	out := maps.Clone(labels)
	if out == nil {
		out = map[string]string{}
	}
	for name, v := range map[string]*string{LabelProvisionable: c.provisionable, LabelRank: c.rank} {
		if v == nil {
			delete(out, name)
		} else {
			out[name] = *v
		}
	}
	return out
}

// damping keeps labels from following every movement: each change is a write to
// the log of all managers.
type damping struct {
	// settle is how long a node must be provisionable before it is so again.
	settle time.Duration
	// pause is the least time between two changes of a node's rank.
	pause time.Duration
	// atOnce is the most changes of one round; the urgent ones come first.
	atOnce int
}

// history is what is remembered of one node.
type history struct {
	since   time.Time // provisionable without a break; zero while it is not
	changed time.Time
}

// keeper decides which labels change. It is not safe for concurrent use and
// calls nobody.
type keeper struct {
	damping
	nodes map[string]*history // by the id in the swarm
}

// upByName counts the members that are up. One that left and joined again stays listed until somebody removes it.
func upByName(members []member) map[string]int {
	count := map[string]int{}
	for _, m := range members {
		if m.up {
			count[m.name]++
		}
	}
	return count
}

// changes says what is to be done now. A node of the swarm that facts do not
// know loses its labels.
func (k *keeper) changes(members []member, facts map[string]fact, now time.Time) []change {
	best := 0.0
	seen := map[string]bool{}
	count := upByName(members)
	for _, m := range members {
		seen[m.id] = true
		if f := facts[m.name]; m.ready && count[m.name] == 1 && f.provisionable && f.score > best {
			best = f.score
		}
	}
	maps.DeleteFunc(k.nodes, func(id string, _ *history) bool { return !seen[id] })
	var out []change
	for _, m := range members {
		f, known := facts[m.name]
		if known && count[m.name] > 1 {
			// Which of them the metrics are about nobody can say.
			f = fact{}
		}
		if c, ok := k.one(m, f, known, best, now); ok {
			if known && m.ready && count[m.name] > 1 {
				c.why = sameName
			}
			out = append(out, c)
		}
	}
	slices.SortStableFunc(out, func(a, b change) int { return cmp.Or(a.urgency-b.urgency, cmp.Compare(a.name, b.name)) })
	out = out[:min(len(out), k.atOnce)]
	for _, c := range out {
		k.of(c.id).changed = now
	}
	return out
}

func (k *keeper) of(id string) *history {
	h := k.nodes[id]
	if h == nil {
		h = &history{}
		k.nodes[id] = h
	}
	return h
}

func (k *keeper) one(m member, f fact, known bool, best float64, now time.Time) (change, bool) {
	state, labelled := m.labels[LabelProvisionable]
	_, ranked := m.labels[LabelRank]
	h := k.of(m.id)
	if !known {
		h.since = time.Time{}
		return change{member: m, why: "no facts about it", urgency: 1}, labelled || ranked
	}
	if !m.ready || !f.provisionable || f.score <= 0 {
		h.since = time.Time{}
		why := "not provisionable"
		if !m.ready {
			why = "the swarm cannot reach it"
		}
		return set(m, "0", 0, why, 0), state != "0" || m.labels[LabelRank] != "0"
	}
	if h.since.IsZero() {
		h.since = now
	}
	exact := MaxRank * f.score / best
	rank := int(min(MaxRank, max(1, math.Round(exact))))
	current, err := strconv.Atoi(m.labels[LabelRank])
	switch {
	case state != "1" && labelled && now.Sub(h.since) < k.settle:
		return change{}, false
	case state != "1" || err != nil || current < 1 || current > MaxRank:
		return set(m, "1", rank, "provisionable", 2), true
	case rank != current && math.Abs(exact-float64(current)) >= 0.75 && now.Sub(h.changed) >= k.pause:
		return set(m, "1", rank, "rank", 3), true
	}
	return change{}, false
}

func set(m member, provisionable string, rank int, why string, urgency int) change {
	r := strconv.Itoa(rank)
	return change{member: m, provisionable: &provisionable, rank: &r, why: why, urgency: urgency}
}
