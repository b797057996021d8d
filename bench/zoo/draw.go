package zoo

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	gpu "github.com/laxity/laxity/exporter/task"
)

// round is what one round is to be. It follows from its seed alone, on machines that
// can run the same kinds.
type round struct {
	seed uint64
	// standard: under the default flags of `laxity up`. services: exporter, actuator and
	// guardian are programs of their own.
	standard, services bool
	flags              []string
	containers         []drawn
	deaths             []death
}

// drawn is one container of a round.
type drawn struct {
	kind   kind
	args   []string
	labels map[string]string
	user   string        // empty: root
	after  time.Duration // from the round's begin to its start
}

// Who dies.
const (
	tenantKilled  = "tenant"   // kill -9
	tenantStopped = "stop"     // as by docker stop
	exporterDies  = "exporter" // with `laxity up`: all of it
	actuatorDies  = "actuator" // with `laxity up`: all of it
	guardianDies  = "guardian" //
	bothDie       = "both"     // actuator and guardian
	laxityEnds    = "end"      // the actuator is asked to; with `laxity up`: all of it
	engineDies    = "engine"   // SIGKILL
	engineStops   = "engine-r" // a restart as by an upgrade
)

// death is that of a program during a round.
type death struct {
	after time.Duration // from the round's begin
	who   string
	// whom is the container's number, for a tenant; again is how long it is until the
	// program is started again, for the others.
	whom  int
	again time.Duration
}

func (d death) ofTenant() bool { return d.who == tenantKilled || d.who == tenantStopped }

func (d death) String() string {
	if d.ofTenant() {
		return fmt.Sprintf("%s %d at %.1fs", d.who, d.whom, d.after.Seconds())
	}
	return fmt.Sprintf("%s at %.1fs for %.1fs", d.who, d.after.Seconds(), d.again.Seconds())
}

// pool is what can be drawn from.
type pool struct {
	kinds  []kind
	engine bool // it may be restarted
	// containers is their number in each round; 0: 4 to 10.
	containers int
}

func pick[T any](r *rand.Rand, from ...T) T { return from[r.IntN(len(from))] }

// draw makes the round of a seed. Every second one is under default flags.
func (p pool) draw(seed uint64) round {
	r := rand.New(rand.NewPCG(seed, 0x200)) //nolint:gosec // not a secret
	n := p.containers
	if n == 0 {
		n = 4 + r.IntN(7)
	}
	out := round{seed: seed, standard: seed%2 == 0}
	if !out.standard {
		out.services = r.IntN(2) == 0
		out.flags = flags(r, out.services)
	}
	for range n {
		out.containers = append(out.containers, p.container(r))
	}
	if r.IntN(5) < 2 {
		out.deaths = p.deaths(r, out)
	}
	return out
}

func flags(r *rand.Rand, services bool) []string {
	all := []string{
		"--policy=" + pick(r, "edf", "llf", "fifo", "p3"),
		"--memory-guard=" + pick(r, "auto", "auto", "off"),
		"--swap=" + pick(r, "auto", "off"),
		"--memory-share=" + pick(r, "limit", "limit", "fair", "adaptive"),
		"--hold=" + pick(r, "auto", "auto", "channels", "pause"),
	}
	arbitrate := pick(r, "auto", "always", "never")
	if services && arbitrate == "auto" {
		arbitrate = "always" // nobody sends alerts there
	}
	return append(all, "--arbitrate="+arbitrate)
}

func (p pool) container(r *rand.Rand) drawn {
	sum := 0
	for _, k := range p.kinds {
		sum += k.often
	}
	at := r.IntN(sum)
	k := p.kinds[0]
	for _, k = range p.kinds {
		if at -= k.often; at < 0 {
			break
		}
	}
	d := drawn{kind: k, args: k.args(r), labels: labels(r, k), after: time.Duration(r.Int64N(int64(1500 * time.Millisecond)))}
	if r.IntN(4) == 0 {
		d.after = time.Duration(r.Int64N(int64(200 * time.Millisecond))) // a few at about the same time
	}
	if k.from == animal && r.IntN(5) == 0 {
		d.user = "65534"
	}
	return d
}

// labels draws those of a container: none for a quarter of them, and values that are
// no values among the others'. A limit of memory is one that the kind keeps.
func labels(r *rand.Rand, k kind) map[string]string {
	m := map[string]string{}
	if r.IntN(4) == 0 {
		return m
	}
	if r.IntN(4) > 0 {
		m[gpu.LabelDeadline] = pick(r, "20ms", "60ms", "300ms", "1s", "3s", "9s", "30s", "5", "30s", "soon", "-3s", "0")
	}
	if r.IntN(5) == 0 {
		m[gpu.LabelShare] = pick(r, "10%", "30%", "60%", "half", "0")
	}
	if r.IntN(4) == 0 {
		m[gpu.LabelClass] = pick(r, "batch", "deadline", "gold")
	}
	if r.IntN(4) == 0 || strings.Contains(k.name, "server") {
		m[gpu.LabelRelease] = pick(r, "busy", "busy", "process", "sometimes")
	}
	if strings.Contains(k.name, "server") && r.IntN(2) == 0 { // one beside whom others take turns
		m[gpu.LabelDeadline], m[gpu.LabelRelease] = pick(r, "20ms", "60ms"), "busy"
	}
	if r.IntN(6) == 0 {
		m[gpu.LabelPause] = pick(r, "allow", "never", "perhaps")
	}
	if r.IntN(3) == 0 || len(m) == 0 {
		m[gpu.LabelGPUMemory] = pick(r, fmt.Sprintf("%dGiB", k.memory+1), fmt.Sprintf("%dGiB", 2*k.memory+2), "40GiB", "plenty", "-1")
	}
	return m
}

// untouchable: nothing may stop or freeze it, whatever the reason.
func (d drawn) untouchable() bool {
	pause, ok := d.labels[gpu.LabelPause]
	return len(d.labels) == 0 || ok && pause != "allow"
}

// countsStops: its processes count how often they are let go on, by a handler, which
// tells also of stops that are too short to be seen. Not all do: others have none.
func (d drawn) countsStops() bool {
	return d.untouchable() && d.kind.from == animal && !d.kind.stops && d.after%2 == 0
}

func (p pool) deaths(r *rand.Rand, of round) (all []death) {
	for range 1 + r.IntN(2) {
		d := death{
			after: 300*time.Millisecond + time.Duration(r.Int64N(int64(3*time.Second))),
			again: time.Duration(r.Int64N(int64(1200 * time.Millisecond))),
			whom:  r.IntN(len(of.containers)),
		}
		who := []string{tenantKilled, tenantStopped, exporterDies, actuatorDies, actuatorDies, guardianDies, bothDie, laxityEnds}
		if p.engine {
			who = append(who, engineDies, engineStops)
		}
		d.who = pick(r, who...)
		all = append(all, d)
	}
	return all
}

// dies reports whether the round kills the container.
func (r round) dies(number int) bool {
	for _, d := range r.deaths {
		if d.ofTenant() && d.whom == number {
			return true
		}
	}
	return false
}
