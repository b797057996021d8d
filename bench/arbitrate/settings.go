package arbitrate

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/laxity/laxity/bench"
)

// Ways that are compared. In the set deadlines the policies are the ways.
const (
	timeSliced = "default"
	p3         = "p3"
	laxity     = "laxity"
	mps        = "mps"
	oneByOne   = "one"
	fifo       = "fifo"
	edf        = "edf"
	llf        = "llf"
)

var allWays = []string{timeSliced, p3, laxity, fifo, edf, llf, mps, oneByOne}

// settings are what `--set` says.
type settings struct {
	sets    []set
	known   []set    // that may be asked for
	ways    []string // empty: all
	repeats int
	limit   time.Duration // after it no run begins
	timeout time.Duration // ends a run that is stuck
	policy  string        // of the way laxity; empty: the actuator's default
	hold    string        // of all but p3
	share   string        // where tasks wait: empty: the policy's own
}

// wants reports whether a way is measured.
func (s settings) wants(way string) bool {
	return len(s.ways) == 0 || slices.Contains(s.ways, way)
}

func defaults(quick bool) settings {
	s := settings{sets: sets(), known: sets(), repeats: 3, limit: 8 * time.Minute, timeout: 3 * time.Minute, policy: fifo, hold: "auto"}
	if quick {
		s.repeats = 1
		s.sets = slices.DeleteFunc(s.sets, func(t set) bool { return t.name != "small" && t.name != "deadlines" })
		for i := range s.sets {
			s.sets[i].counts = []int{3}
		}
	}
	return s
}

// parse reads what changes the defaults.
func parse(s settings, env bench.Env) (settings, error) {
	for name, value := range env.Args {
		var err error
		switch name {
		case "sets":
			s.sets, err = pick(s.sets, s.known, strings.Split(value, ","))
		case "ways":
			s.ways = strings.Split(value, ",")
			for _, w := range s.ways {
				if !slices.Contains(allWays, w) {
					err = fmt.Errorf("no way %q", w)
				}
			}
		case "repeats":
			s.repeats, err = strconv.Atoi(value)
		case "limit":
			s.limit, err = time.ParseDuration(value)
		case "policy":
			s.policy = value
		case "hold":
			s.hold = value
		case "share":
			s.share = value
		default: // counts, below: it needs the others; verbose is the rig's
		}
		if err != nil {
			return s, fmt.Errorf("--set %s=%s: %w", name, value, err)
		}
	}
	if err := s.count(env.Args["counts"]); err != nil {
		return s, err
	}
	return s, nil
}

// count restricts the numbers of tasks.
func (s *settings) count(which string) error {
	for i, t := range s.sets {
		at := map[string]int{"lowest": 0, "middle": len(t.counts) / 2, "highest": len(t.counts) - 1}
		n, number := strconv.Atoi(which)
		switch place, ok := at[which]; {
		case number == nil && slices.Contains(t.counts, n):
			s.sets[i].counts = []int{n}
		case ok:
			s.sets[i].counts = t.counts[place : place+1]
		case which != "" && which != "all":
			return fmt.Errorf("--set counts=%s: write lowest, middle, highest, all, or a number that each set has", which)
		}
	}
	return nil
}

// pick returns the sets with these names, in this order.
func pick(have, known []set, names []string) ([]set, error) {
	var out []set
	for _, name := range names {
		all := slices.Concat(have, known) // those that --quick left out are there by name
		i := slices.IndexFunc(all, func(s set) bool { return s.name == name })
		if i < 0 {
			var all []string
			for _, s := range known {
				all = append(all, s.name)
			}
			return nil, fmt.Errorf("no set %q; known are %s", name, strings.Join(all, ", "))
		}
		out = append(out, all[i])
	}
	return out, nil
}
