package channels

import (
	"fmt"
	"strings"
	"time"

	"github.com/laxity/laxity/bench"
)

// settings are what --set says.
type settings struct {
	parts  []string
	kernel time.Duration // of the tenant that is switched
	limit  time.Duration // of a part
	counts
}

// counts are how much of each there is.
type counts struct {
	cycles, pauses, rounds, starting, news, old, ends, kills int
}

var (
	fullCounts  = counts{cycles: 1000, pauses: 20, rounds: 6, starting: 8, news: 20, old: 5, ends: 100, kills: 400}
	quickCounts = counts{cycles: 20, pauses: 2, rounds: 1, starting: 2, news: 1, old: 2, ends: 7, kills: 2}
)

// count is a setting that is a number, and where it goes.
type count struct {
	name, means string
	of          func(*counts) *int
}

var numbers = []count{
	{"cycles", "how often the kernel is taken off and on", func(c *counts) *int { return &c.cycles }},
	{"pauses", "how often Docker's pause is measured beside it", func(c *counts) *int { return &c.pauses }},
	{"rounds", "how often containers start, with the switching and without", func(c *counts) *int { return &c.rounds }},
	{"starting", "how many start at once", func(c *counts) *int { return &c.starting }},
	{"new", "how many new processes are found", func(c *counts) *int { return &c.news }},
	{"old", "how many old processes are found at once", func(c *counts) *int { return &c.old }},
	{"ends", "how many tenants end while they are off, and as many that are on", func(c *counts) *int { return &c.ends }},
}

func settingList() []bench.Setting {
	list := []bench.Setting{{Name: "parts", Means: "some of " + strings.Join(allParts, ",") + "; all"}}
	for _, n := range numbers {
		full := fullCounts
		list = append(list, bench.Setting{Name: n.name, Means: fmt.Sprintf("%s; %d", n.means, *n.of(&full))})
	}
	return append(list,
		bench.Setting{Name: "kernel", Means: "how long the kernel that is switched takes alone, up to 20s; 10s"},
		bench.Setting{Name: "limit", Means: "how long a part may take: then it ends with what it has; 10m"})
}

func readSettings(env bench.Env) (s settings, err error) {
	s = settings{kernel: 10 * time.Second, limit: 10 * time.Minute, counts: fullCounts}
	if env.Quick {
		s.kernel, s.counts = time.Second, quickCounts
	}
	if s.parts, err = env.Some("parts", allParts, allParts); err != nil {
		return s, err
	}
	for _, n := range numbers {
		to := n.of(&s.counts)
		if *to, err = env.Number(n.name, 1, *to); err != nil {
			return s, err
		}
	}
	if s.kills, err = env.Number("kills", 1, s.kills); err != nil {
		return s, err
	}
	for name, to := range map[string]*time.Duration{"kernel": &s.kernel, "limit": &s.limit} {
		text, ok := env.Args[name]
		if !ok {
			continue
		}
		if *to, err = time.ParseDuration(text); err != nil || *to <= 0 {
			return s, fmt.Errorf("--set %s=%s: write a duration above 0, such as 10s", name, text)
		}
	}
	if s.kernel > 20*time.Second {
		return s, fmt.Errorf("--set kernel=%v: a kernel counts its steps with 32 bits, which are used up after some 20s", s.kernel)
	}
	return s, nil
}
