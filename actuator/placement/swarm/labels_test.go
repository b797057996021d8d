package swarm

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/docker/docker/api/types/swarm"
	"pgregory.net/rapid"

	"github.com/laxity/laxity/actuator/placement"
)

var start = time.Unix(1_800_000_000, 0)

func labelled(provisionable, rank string) map[string]string {
	return map[string]string{LabelProvisionable: provisionable, LabelRank: rank, "zone": "a"}
}

func TestChanges(t *testing.T) {
	steady := start.Add(-time.Hour)
	for name, tc := range map[string]struct {
		labels  map[string]string
		ready   bool
		fact    *fact
		since   time.Time
		changed time.Time
		want    string // provisionable/rank, "-" for no change
	}{
		"new":                           {map[string]string{"zone": "a"}, true, &fact{true, 50}, time.Time{}, time.Time{}, "1/5"},
		"the same":                      {labelled("1", "5"), true, &fact{true, 50}, steady, time.Time{}, "-"},
		"a little better":               {labelled("1", "5"), true, &fact{true, 56}, steady, time.Time{}, "-"},
		"better":                        {labelled("1", "5"), true, &fact{true, 70}, steady, time.Time{}, "1/7"},
		"better, but just changed":      {labelled("1", "5"), true, &fact{true, 70}, steady, start.Add(-time.Second), "-"},
		"full":                          {labelled("1", "5"), true, &fact{false, 0}, steady, start.Add(-time.Second), "0/0"},
		"full as before":                {labelled("0", "0"), true, &fact{false, 0}, steady, time.Time{}, "-"},
		"stale":                         {labelled("1", "5"), true, &fact{}, steady, time.Time{}, "0/0"},
		"died":                          {labelled("1", "5"), false, &fact{true, 50}, steady, time.Time{}, "0/0"},
		"back, not settled":             {labelled("0", "0"), true, &fact{true, 50}, start.Add(-time.Second), time.Time{}, "-"},
		"back, settled":                 {labelled("0", "0"), true, &fact{true, 50}, steady, time.Time{}, "1/5"},
		"not ours":                      {map[string]string{"zone": "a"}, true, nil, time.Time{}, time.Time{}, "-"},
		"not ours any more":             {labelled("1", "5"), true, nil, steady, time.Time{}, "gone"},
		"written by somebody":           {labelled("1", "high"), true, &fact{true, 50}, steady, time.Time{}, "1/5"},
		"the worst that can is above 0": {map[string]string{}, true, &fact{true, 0.01}, time.Time{}, time.Time{}, "1/1"},
	} {
		t.Run(name, func(t *testing.T) {
			k := keeper{damping{5 * time.Second, 30 * time.Second, 20}, map[string]*history{"id": {since: tc.since, changed: tc.changed}}}
			// Another node is the best.
			members := []member{{"id", "n", tc.ready, tc.ready, tc.labels}, {"best", "best", true, true, labelled("1", "10")}}
			k.nodes["best"] = &history{since: steady}
			facts := map[string]fact{"best": {true, 100}}
			if tc.fact != nil {
				facts["n"] = *tc.fact
			}
			got := "-"
			if c := k.changes(members, facts, start); len(c) == 1 {
				after := c[0].apply(tc.labels)
				got = after[LabelProvisionable] + "/" + after[LabelRank]
				if got == "/" {
					got = "gone"
				}
				if after["zone"] != tc.labels["zone"] {
					t.Errorf("another label changed: %v", after)
				}
			} else if len(c) > 1 {
				t.Fatalf("changes = %+v", c)
			}
			if got != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
		})
	}
}

// Two nodes of the same host name: nobody can say which one the metrics are
// about, so neither is provisionable, and the best is another one.
func TestSameName(t *testing.T) {
	k := keeper{damping{time.Second, time.Second, 20}, map[string]*history{}}
	members := []member{{"1", "n", true, true, nil}, {"2", "n", true, true, nil}, {"3", "other", true, true, nil}}
	c := k.changes(members, map[string]fact{"n": {true, 4}, "other": {true, 1}}, start)
	if len(c) != 3 || *c[0].provisionable != "0" || *c[1].provisionable != "0" || c[0].why != sameName || c[1].why != sameName {
		t.Fatalf("%+v", c)
	}
	if *c[2].rank != "10" {
		t.Errorf("the best has the rank %s", *c[2].rank)
	}
}

// A node that left and joined again is listed twice until somebody removes the first entry, which is down: it is used,
// in whatever order they are listed. One that is drained is up, and the metrics may be about it.
func TestNodeThatJoinedAgain(t *testing.T) {
	down, drained, ready := peer("old", "n"), peer("old", "n"), peer("new", "n")
	down.Status.State = swarm.NodeStateDown
	drained.Spec.Availability = swarm.NodeAvailabilityDrain
	for name, tc := range map[string]struct {
		nodes []swarm.Node
		used  bool
	}{
		"down first":    {[]swarm.Node{down, ready}, true},
		"down last":     {[]swarm.Node{ready, down}, true},
		"drained first": {[]swarm.Node{drained, ready}, false},
		"drained last":  {[]swarm.Node{ready, drained}, false},
		"both ready":    {[]swarm.Node{ready, peer("other", "n")}, false},
	} {
		t.Run(name, func(t *testing.T) {
			var log strings.Builder
			src := &source{nodes: []placement.Node{node("n", 10<<30)}}
			f := &fake{manager: true, nodes: slices.Clone(tc.nodes)}
			s, err := New(Options{Engine: f, Source: src, Now: func() time.Time { return start }, Logger: slog.New(slog.NewTextHandler(&log, nil))})
			if err != nil {
				t.Fatal(err)
			}
			spec := swarm.ServiceSpec{}
			spec.TaskTemplate.ContainerSpec = &swarm.ContainerSpec{Image: "img"}
			_, err = s.Place(t.Context(), spec, placement.Request{}, &shelf{src: src})
			if (err == nil) != tc.used || err != nil && !errors.Is(err, ErrNoNode) {
				t.Errorf("place: %v", err)
			}
			if tc.used && !slices.Contains(f.created[0].TaskTemplate.Placement.Constraints, "node.id==new") {
				t.Errorf("created %+v", f.created[0].TaskTemplate.Placement)
			}
			if said := strings.Contains(log.String(), "two nodes of this name"); said == tc.used {
				t.Errorf("log: %s", log.String())
			}
			if _, err := s.Step(t.Context()); err != nil {
				t.Fatal(err)
			}
			want := map[bool]string{true: "1/10", false: "0/0"}[tc.used]
			for _, n := range f.nodes {
				if got := n.Spec.Labels[LabelProvisionable] + "/" + n.Spec.Labels[LabelRank]; n.ID == "new" && got != want {
					t.Errorf("labelled %s, want %s", got, want)
				}
			}
		})
	}
}

// cluster is the swarm's side of the keeper.
type cluster struct {
	*keeper
	members []member
	facts   map[string]fact
	now     time.Time
	writes  int
}

func (c *cluster) round(step time.Duration) int {
	c.now = c.now.Add(step)
	changes := c.changes(c.members, c.facts, c.now)
	for _, ch := range changes {
		for i := range c.members {
			if c.members[i].id == ch.id {
				c.members[i].labels = ch.apply(c.members[i].labels)
			}
		}
	}
	c.writes += len(changes)
	return len(changes)
}

// Whatever came before: when the facts stay, the labels come to rest, and say
// what the facts say; no round writes more than it may; jitter writes nothing.
func TestComesToRest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := cluster{keeper: &keeper{damping{5 * time.Second, 30 * time.Second, 3}, map[string]*history{}}, facts: map[string]fact{}, now: start}
		for i := range rapid.IntRange(1, 8).Draw(t, "nodes") {
			c.members = append(c.members, member{id: fmt.Sprint(i), name: fmt.Sprint("n", i), ready: true, labels: map[string]string{"zone": "a"}})
		}
		shake := func(what string) {
			for i := range c.members {
				c.members[i].ready = rapid.IntRange(0, 4).Draw(t, what+" ready") > 0
				name := c.members[i].name
				delete(c.facts, name)
				if rapid.IntRange(0, 4).Draw(t, what+" known") > 0 {
					c.facts[name] = fact{rapid.Bool().Draw(t, what+" provisionable"), rapid.Float64Range(0.1, 100).Draw(t, what+" score")}
				}
			}
		}
		for range rapid.IntRange(0, 10).Draw(t, "rounds") {
			shake("before")
			if n := c.round(5 * time.Second); n > 3 {
				t.Fatalf("%d writes in one round", n)
			}
		}
		shake("at last")
		for range 20 {
			c.round(5 * time.Second)
		}
		if n := c.round(time.Hour); n != 0 {
			t.Fatalf("%d writes though nothing changed: %+v", n, c.members)
		}
		for _, m := range c.members {
			f, known := c.facts[m.name]
			want := "0"
			switch {
			case !known:
				want = ""
			case m.ready && f.provisionable:
				want = "1"
			}
			if got := m.labels[LabelProvisionable]; got != want || m.labels["zone"] != "a" || (m.labels[LabelRank] == "0") != (want == "0") {
				t.Fatalf("%s is labelled %v, want provisionable %q", m.name, m.labels, want)
			}
		}
		before := c.writes
		quiet := maps.Clone(c.facts)
		for range 50 {
			for name, f := range quiet {
				f.score *= rapid.Float64Range(0.99, 1.01).Draw(t, "jitter")
				c.facts[name] = f
			}
			c.round(5 * time.Second)
		}
		if c.writes > before+len(c.members) {
			t.Fatalf("%d writes for a jitter of 1 %%", c.writes-before)
		}
	})
}
