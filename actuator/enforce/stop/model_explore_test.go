package stop

import (
	"fmt"
	"slices"
	"strings"
)

// explored is what was found out of a world.
type explored struct {
	states int
	*finding
}

// finding is how a rule can be broken.
type finding struct {
	rule  rule
	trace []string
}

// explore visits all states that can be reached, those after the fewest steps first.
// With only set it looks for nothing but a break of that rule.
func explore(w world, v variant, only rule) explored {
	e := &explorer{model: model{world: w, variant: v}, only: only, known: map[state]int32{}}
	var start state
	for i := range start.threads {
		start.threads[i].hold = uint8(i)
	}
	e.add(start, -1)
	for at := 0; at < len(e.visits) && e.found == nil; at++ {
		e.expand(int32(at))
		if only != "" { // a break is found earlier so; all states are done faster below
			e.follow(int32(at))
		}
	}
	for at := 0; at < len(e.visits) && e.found == nil; at++ {
		e.follow(int32(at))
	}
	return explored{len(e.visits), e.found}
}

type explorer struct {
	model
	only   rule
	known  map[state]int32
	visits []visit
	found  *finding
}

// visit is a state that was reached.
type visit struct {
	state
	from int32 // the visit that it was reached from
	good bool  // when the sweeper works alone from here on, all ends well
}

func (e *explorer) add(s state, from int32) {
	if _, ok := e.known[s]; !ok {
		e.known[s] = int32(len(e.visits))
		e.visits = append(e.visits, visit{s, from, false})
	}
}

// breaks reports whether a rule was broken that matters.
func (e *explorer) breaks(r rule) bool { return r != "" && (e.only == "" || r == e.only) }

// expand visits what can follow a state.
func (e *explorer) expand(at int32) {
	for _, step := range e.next(e.visits[at].state) {
		if e.breaks(step.rule) {
			e.found = &finding{step.rule, append(e.trace(at), step.String(), "→ "+step.why)}
			return
		}
		e.add(step.to, at)
	}
}

// follow lets the sweeper work alone from a state on, until nothing is left to do.
func (e *explorer) follow(at int32) {
	const most = 300 // steps
	var path []int32
	s := e.visits[at].state
	for range most {
		n, ok := e.known[s]
		if ok && e.visits[n].good {
			e.endWell(path)
			return
		}
		if ok {
			path = append(path, n)
		}
		step, more := e.alone(s)
		if !more {
			step.rule, _ = e.inTheEnd(s)
		}
		if e.breaks(step.rule) {
			break
		}
		if !more {
			e.endWell(path)
			return
		}
		s = step.to
	}
	e.found = e.account(at)
}

func (e *explorer) endWell(path []int32) {
	for _, n := range path {
		e.visits[n].good = true
	}
}

// account tells what follow has found.
func (e *explorer) account(at int32) *finding {
	s, words := e.visits[at].state, append(e.trace(at), "from now on nobody works but the sweeper:")
	for range 60 {
		step, more := e.alone(s)
		why := step.why
		if more {
			words = append(words, step.String())
		} else {
			step.rule, why = e.inTheEnd(s)
		}
		if e.breaks(step.rule) {
			return &finding{step.rule, append(words, "→ "+why)}
		}
		s = step.to
	}
	return &finding{forever, append(words, "→ and so on, for ever")}
}

// trace is how a state was reached, in words.
func (e *explorer) trace(at int32) (words []string) {
	for ; e.visits[at].from >= 0; at = e.visits[at].from {
		for _, step := range e.next(e.visits[e.visits[at].from].state) {
			if step.to == e.visits[at].state {
				words = append(words, step.String())
				break
			}
		}
	}
	slices.Reverse(words)
	return words
}

func (f *finding) String() string {
	return fmt.Sprintf("%s: broken in %d steps:\n\t%s", f.rule, len(f.trace), strings.Join(f.trace, "\n\t"))
}
