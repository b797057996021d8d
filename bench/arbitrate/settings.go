package arbitrate

import (
	"fmt"
	"os"
	"path/filepath"
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

// set is a number of equal tasks. Sizes are for an H200.
type set struct {
	name       string
	n, kernels int
	host       float64 // seconds of the host phase
	counts     []int   // how many tasks, ascending
	deadlines  bool
	alone      alone // of the set with deadlines
}

// alone is what one task takes without others, seconds.
type alone struct{ took, kernels float64 }

func (s set) highest() int { return s.counts[len(s.counts)-1] }

func (s set) ways() []string {
	if s.deadlines {
		return []string{timeSliced, p3, fifo, edf, llf, mps}
	}
	return []string{timeSliced, p3, laxity, mps, oneByOne}
}

// deadline of the i-th task, from 0, seconds: enough for those before it and a
// tenth more.
func (s set) deadline(i int) float64 {
	return 1.1*(s.alone.took+float64(i)*s.alone.kernels) + 0.5
}

func sets() []set {
	return []set{
		{name: "large", n: 16384, kernels: 2, host: 0.55, counts: []int{1, 3, 5}},
		{name: "middle", n: 8192, kernels: 4, host: 0.3, counts: []int{1, 5, 10}},
		{name: "small", n: 4096, kernels: 4, host: 0.1, counts: []int{1, 10, 20}},
		{name: "deadlines", n: 16384, kernels: 2, host: 0.55, counts: []int{8}, deadlines: true},
	}
}

// settings are what `--set` says.
type settings struct {
	sets    []set
	ways    []string // empty: all
	repeats int
	limit   time.Duration // after it no run begins
	policy  string        // of the way laxity
	share   string        // of the gated ways; empty: the policy's own
	verbose bool          // the actuator's log to the standard error
	earlier []bench.Row
}

func (s settings) wants(way string) bool { return len(s.ways) == 0 || slices.Contains(s.ways, way) }

func parse(env bench.Env) (settings, error) {
	s := settings{sets: sets(), repeats: 3, limit: 8 * time.Minute, policy: fifo}
	if env.Quick {
		s.repeats = 1
		s.sets = slices.DeleteFunc(s.sets, func(t set) bool { return t.name == "middle" || t.name == "large" })
		for i := range s.sets {
			s.sets[i].counts = []int{3}
		}
	}
	for name, value := range env.Args {
		var err error
		switch name {
		case "sets":
			s.sets, err = pick(s.sets, strings.Split(value, ","))
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
		case "share":
			s.share = value
		case "verbose":
			s.verbose = true
		case "counts", "add": // below: they need the others
		default:
			err = fmt.Errorf("known are sets, ways, repeats, counts, limit, policy, share, verbose, add")
		}
		if err != nil {
			return s, fmt.Errorf("--set %s=%s: %w", name, value, err)
		}
	}
	if env.Args["counts"] == "highest" {
		for i := range s.sets {
			s.sets[i].counts = s.sets[i].counts[len(s.sets[i].counts)-1:]
		}
	}
	if path := env.Args["add"]; path != "" {
		stored, err := bench.ReadResult(os.DirFS(filepath.Dir(path)), filepath.Base(path))
		if err != nil {
			return s, fmt.Errorf("--set add=%s: %w", path, err)
		}
		s.earlier = stored.Rows
	}
	return s, nil
}

// pick returns the sets with these names, in this order.
func pick(have []set, names []string) ([]set, error) {
	var out []set
	for _, name := range names {
		all := slices.Concat(have, sets()) // those that --quick left out are there by name
		i := slices.IndexFunc(all, func(s set) bool { return s.name == name })
		if i < 0 {
			return nil, fmt.Errorf("no set %q; known are large, middle, small, deadlines", name)
		}
		out = append(out, all[i])
	}
	return out, nil
}
