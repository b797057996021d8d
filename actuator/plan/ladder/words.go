package ladder

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// why says in plain words what a process in the queue has.
func (p *planner) why(m member, s Standing, wants bool, wanting []member) string {
	slice := "slice " + written(s.Slice)
	if m.why != "" && s.Slice != short {
		slice = m.why + ", " + slice
	}
	switch {
	case m.Bound != "" && m.Stands.Off:
		return "off the GPU: " + m.Bound
	case s.Off && p.state.turn.visits:
		return p.whyAway()
	case s.Off:
		return p.whyOff(m, wanting)
	case !wants:
		return "it does not want the GPU at the moment, " + slice
	case len(p.foreign) > 0:
		return ordinal(s.Rank) + " in the queue, " + slice + p.besideOthers()
	case len(p.tops) == 0 && len(p.queue) == 1:
		return "alone on the GPU, slice as by default"
	case len(p.tops) > 0 && len(p.state.turn.on) > 0 && p.state.turn.visits:
		return fmt.Sprintf("its visit beside %s, which computes without a break, %s", p.tops[0].Name, slice)
	case len(p.tops) > 0 && len(p.state.turn.on) > 0:
		return fmt.Sprintf("its turn beside the requests of %s, %s", p.tops[0].Name, slice)
	case len(p.tops) > 0:
		return fmt.Sprintf("%s in the queue, after the requests of %s, %s", ordinal(s.Rank), p.tops[0].Name, slice)
	case m.beside:
		return ordinal(s.Rank) + " in the queue, and beside the first: it has waited for as long as sharing would have cost it, " + slice
	default:
		return ordinal(s.Rank) + " in the queue, " + slice
	}
}

// besideOthers says what holds beside containers that are not ours to act on, and names them: a label would help.
func (p *planner) besideOthers() string {
	names := slices.Compact(slices.Sorted(slices.Values(p.foreign)))
	who := names[0]
	switch n := len(names); {
	case n > 2:
		who = fmt.Sprintf("%s and %d more", who, n-1)
	case n == 2:
		who += " and " + names[1]
	}
	return ": beside " + who + ", which must be left alone, all together have no more than by default"
}

func (p *planner) whyOff(m member, wanting []member) string {
	var turn []string
	var moving []member
	for _, o := range wanting {
		if o.moves() {
			moving = append(moving, o)
		}
		for _, id := range p.state.turn.on {
			if id == o.ID {
				turn = append(turn, o.Name)
			}
		}
	}
	d := p.back(m.ID, p.lengths(moving)).Sub(p.state.turn.off[m.ID])
	why := fmt.Sprintf("requests of %s come first", p.tops[0].Name)
	if p.byOrder {
		why = fmt.Sprintf("beside requests of %s slices are too short to keep the order", p.tops[0].Name)
	}
	return fmt.Sprintf("off the GPU for %s: %s, and it is the turn of %s", written(d.Round(time.Millisecond)), why, strings.Join(turn, ", "))
}

// whyNoTurns says why processes that want the GPU take no turns beside short deadlines.
func (p *planner) whyNoTurns(wanting []member) string {
	reason := "there are too many of them"
	for _, m := range wanting {
		switch {
		case m.KeepOn != "":
			reason = m.Name + " must stay on: " + m.KeepOn
		case !m.Measured:
			reason = "the GPU time of " + m.Name + " is not measured"
		default:
			continue
		}
		break
	}
	return fmt.Sprintf("requests of %s wait for %d others, which take no turns: %s", p.tops[0].Name, len(wanting), reason)
}

func (p *planner) whyTop(i int, s Standing) string {
	slice := "slice " + written(s.Slice)
	switch {
	case len(p.foreign) > 0:
		return ordinal(s.Rank) + " in the queue, " + slice + p.besideOthers()
	case len(p.tops)+len(p.queue) == 1:
		return "alone on the GPU, slice as by default"
	case i == 0:
		return "its requests come first, " + slice
	default:
		return fmt.Sprintf("its requests come after those of %s; the first of them to get the GPU keeps it for its request, this one for %s at most", p.tops[0].Name, written(s.Slice))
	}
}

// written formats a duration as people write it: 100 ms, 2.5 ms, 1 s.
func written(d time.Duration) string {
	switch {
	case d >= time.Second:
		return fmt.Sprintf("%.3g s", d.Seconds())
	case d >= time.Millisecond:
		return fmt.Sprintf("%.3g ms", float64(d)/float64(time.Millisecond))
	default:
		return fmt.Sprintf("%d µs", d.Microseconds())
	}
}

var ordinals = []string{"", "first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth"}

func ordinal(n int) string {
	if n < len(ordinals) {
		return ordinals[n]
	}
	return fmt.Sprintf("number %d", n)
}
