package forward

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/laxity/laxity/actuator/decision"
)

// trouble is a row of failures with one node: said once when it begins and once
// when it is over.
type trouble struct {
	f     *Forwarder
	node  string
	since time.Time
	wait  time.Duration
}

// next says how long to wait, with some randomness, so that actuators that lost
// the same node do not come back together.
func (t *trouble) next(err error) time.Duration {
	if t.wait == 0 {
		t.since = t.f.o.Now()
		t.wait = firstWait
		t.f.metrics.unreachable(t.node, true)
		t.say(decision.Failed, "the actuator of node "+t.node+" takes no alerts; they are kept and tried again", err)
	}
	wait := t.wait
	t.wait = min(2*t.wait, lastWait)
	// An alert must not outlive its age because of a long wait.
	return min(wait, t.f.o.MaxAge)*3/4 + rand.N(wait/4+1)
}

func (t *trouble) over() {
	if t.wait == 0 {
		return
	}
	t.say(decision.Done, fmt.Sprintf("the actuator of node %s takes alerts again, after %v", t.node, t.f.o.Now().Sub(t.since).Round(time.Second)), nil)
	t.forget()
}

func (t *trouble) forget() {
	if t.wait > 0 {
		t.f.metrics.unreachable(t.node, false)
	}
	t.wait = 0
}

func (t *trouble) say(r decision.Result, reason string, err error) {
	d := decision.Decision{Time: t.f.o.Now(), Kind: decision.Service, Result: r, Reason: reason, Node: t.node}
	if err != nil {
		d.Error = err.Error()
		t.f.o.Logger.Warn(reason, "node", t.node, "err", err)
	} else {
		t.f.o.Logger.Info(reason, "node", t.node)
	}
	t.f.o.Decide(d)
}
