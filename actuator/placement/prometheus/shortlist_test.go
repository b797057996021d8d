package prometheus_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"

	"github.com/laxity/laxity/actuator/placement"
	"github.com/laxity/laxity/actuator/placement/prometheus"
)

func TestShortlistQuery(t *testing.T) {
	for want, req := range map[string]placement.Request{
		`topk(3, node:rank:score > 0)`:                                         {},
		`topk(3, node:rank:score > 0 and node:float:seconds > 0.25)`:           {Deadline: 0.25},
		`topk(3, node:rank:score >= 4294967296 and node:float:seconds > 3600)`: {Deadline: 3600, GPUMemory: 4 << 30},
	} {
		if got := prometheus.ShortlistQuery(req, 3); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

// steps answers queries one after another.
type steps struct {
	answers []model.Vector
	err     error
	exprs   []string
	at      []time.Time
}

func (s *steps) Query(_ context.Context, expr string, at time.Time) (model.Vector, error) {
	s.exprs, s.at = append(s.exprs, expr), append(s.at, at)
	if len(s.answers) == 0 {
		return nil, s.err
	}
	v := s.answers[0]
	s.answers = s.answers[1:]
	return v, nil
}

func TestShortlist(t *testing.T) {
	first := sample("node:rank:score", "b.example", "", 7e9)
	first.Timestamp = 1_800_000_000_000
	q := &steps{answers: []model.Vector{{first, sample("node:rank:score", `odd"name|x`, "", 6e9)},
		{sample("node:rank:score", "b.example", "", 7e9), sample("node:fresh:bool", "b.example", "", 1)}}}
	nodes, err := prometheus.NewSource(q).Shortlist(t.Context(), placement.Request{Deadline: 9}, 2)
	if err != nil || len(nodes) != 1 || nodes[0].Name != "b.example" || nodes[0].Score != 7e9 {
		t.Fatalf("%+v %v", nodes, err)
	}
	if len(q.exprs) != 2 || !strings.HasSuffix(q.exprs[1], `,node=~"b\\.example|odd\"name\\|x"}`) || !q.at[1].Equal(time.UnixMilli(1_800_000_000_000)) {
		t.Errorf("asked %q at %v", q.exprs, q.at)
	}

	// No candidate is an answer, and costs one query.
	q = &steps{}
	if nodes, err := prometheus.NewSource(q).Shortlist(t.Context(), placement.Request{}, 0); err != nil || len(nodes) != 0 || len(q.exprs) != 1 {
		t.Errorf("%v %v %v", nodes, err, q.exprs)
	}
	down := errors.New("down")
	for _, q := range []*steps{{err: down}, {answers: []model.Vector{{first}}, err: down}} {
		if _, err := prometheus.NewSource(q).Shortlist(t.Context(), placement.Request{}, 0); !errors.Is(err, down) {
			t.Errorf("error = %v", err)
		}
	}
}
