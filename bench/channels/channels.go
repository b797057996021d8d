// Package channels measures the mechanism of channel control by itself: how soon a running
// kernel stops and goes on, how soon channels are found, and that nothing stays behind
// when tenants or Laxity end.
package channels

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/laxity/laxity/actuator/enforce/channels"
	"github.com/laxity/laxity/bench"
	"github.com/laxity/laxity/bench/rig"
	"github.com/laxity/laxity/exporter"
	"github.com/laxity/laxity/exporter/device"
	"github.com/laxity/laxity/exporter/device/sim/simrm"
	"github.com/laxity/laxity/internal/rm"
)

const about = `Laxity orders a GPU by one mechanism: it takes a tenant's channels off the GPU and on again, from outside, while its
host side keeps running. This experiment measures that mechanism alone. A container runs a kernel of 10 s that writes a counter into
memory which the experiment reads: the counter's last move after the decision is when the kernel really stopped, and
its first move after the next decision is when it went on. A decision is carried out as in the product: put on record, the
process checked, then the call. Each kernel is a fixed amount of work, and every thread's result is compared with the
CPU's. In turns with it runs Docker's pause, which freezes the container's host side, so a launched kernel
runs to its end. Then it measures the same switching while eight containers start, and their start-ups with it and without it, in
turns (a kernel that waits for its slice has stopped already, which counts as 0). It measures how long it takes to find the
channels of a process: a new one, from the moment that it has a context; an old one after a restart of Laxity, which
remembers nothing; five old ones at once. Tenants end while they are off, in seven ways, in turns with others that were
never off: the process must end and its memory must be free. On a simulated GPU, whose kernels have no content, the
counter is that of kernels of 1 ms.`

// The parts, in their order.
const (
	partSwitch   = "switch"
	partStartups = "startups"
	partFind     = "find"
	partEnds     = "ends"
	partPause    = "pause"
	partKills    = "kills" // an experiment of its own: Kills
)

// partOn are the same ends of tenants that were never off, measured in turns with those that were.
const partOn = "ends, never off"

var allParts = []string{partSwitch, partStartups, partFind, partEnds, partPause}

// Experiment is the measurement of channel control.
func Experiment() bench.Experiment {
	return bench.Experiment{
		Name: "channels", Title: "Channel control: a running kernel off the GPU and on again", About: about,
		Settings: settingList(), Run: run, Figures: figures, Table: table, Charts: charts,
	}
}

const aboutKills = `A laxity up divides a GPU between a server with a deadline and three containers that compute without a break, by
slices and channels off and on. It is killed (SIGKILL) at random moments, every other time together with its guardian.
Afterwards every process must be on with its own slice. The guardian sees to that, timed from the kill. Where it is dead too, the
next laxity up does, timed from its start. stuck are kills after which somebody did not go on, wrong those after which somebody
had another slice, and wrong results at the end. Times are of the kills that left something to undo.`

// Kills is the measurement of what stays behind when Laxity itself is killed.
func Kills() bench.Experiment {
	return bench.Experiment{
		Name: "kills", Title: "Laxity killed while it takes channels off and on", About: aboutKills,
		Settings: []bench.Setting{
			{Name: "kills", Means: fmt.Sprintf("how often laxity up is killed, half of them with its guardian; %d", fullCounts.kills), Part: true},
			{Name: "limit", Means: "how long it may take: then it ends with what it has; 10m", Part: true},
		},
		Portions: true, Run: runKills, Figures: figures, Table: table,
	}
}

// measurement is one run of the experiment.
type measurement struct {
	*rig.Rig
	env bench.Env
	how settings
	limits
	random   *rand.Rand
	program  string
	folder   string // of the memory that is shared with the containers
	driver   driver
	enforcer *channels.Enforcer
	reader   device.Device
	count    int // of subjects
}

// driver is the resource manager, and how often it was asked.
type driver interface {
	channels.Driver
	// Mark lets a search for processes that start later begin here.
	Mark(ctx context.Context) error
}

// errCannot is why a part cannot be measured here.
type errCannot struct{ why string }

func (e errCannot) Error() string { return e.why }

// startLimit is how long a container may take to start or to end.
const startLimit = time.Minute

func run(ctx context.Context, env bench.Env) ([]bench.Row, error) {
	how, err := readSettings(env)
	if err != nil {
		return nil, err
	}
	return measure(ctx, env, how)
}

func runKills(ctx context.Context, env bench.Env) ([]bench.Row, error) {
	how, err := readSettings(env)
	if err != nil {
		return nil, err
	}
	how.parts = []string{partKills}
	rows, err := measure(ctx, env, how)
	for _, r := range rows {
		r["run"] = env.FirstRun()
	}
	return rows, err
}

func measure(ctx context.Context, env bench.Env, how settings) (rows []bench.Row, err error) {
	// Each portion has moments of its own.
	m := &measurement{env: env, how: how, random: rand.New(rand.NewPCG(env.Seed, uint64(env.FirstRun()-1)))} //nolint:gosec // not a secret
	if err := m.open(ctx); err != nil {
		return nil, errors.Join(err, m.close())
	}
	defer func() { err = errors.Join(err, m.close()) }()
	var failed []error
	for _, p := range []struct {
		name string
		do   func(context.Context) ([]bench.Row, error)
	}{{partSwitch, m.switching}, {partStartups, m.startups}, {partFind, m.finding}, {partEnds, m.ends}, {partKills, m.kills}} {
		wanted := slices.Contains(m.how.parts, p.name) || p.name == partSwitch && slices.Contains(m.how.parts, partPause)
		if !wanted || ctx.Err() != nil {
			continue
		}
		env.Log("%s", p.name)
		more, err := p.do(ctx)
		for _, r := range more {
			if r.Str("part") == "" {
				r["part"] = p.name
			}
		}
		rows = append(rows, more...)
		var cannot errCannot
		if errors.Is(err, rm.ErrUnsupported) {
			err = errCannot{err.Error()}
		}
		switch {
		case errors.As(err, &cannot):
			env.Log("%s: cannot be measured here: %s", p.name, cannot.why)
			rows = append(rows, bench.Row{"part": p.name, "cannot": cannot.why})
		case err != nil:
			rows = append(rows, bench.Row{"part": p.name, "failed": err.Error()})
			failed = append(failed, fmt.Errorf("part %s: %w", p.name, err))
		}
	}
	return rows, errors.Join(append(failed, ctx.Err())...)
}

func (m *measurement) open(ctx context.Context) (err error) {
	if m.Rig, err = rig.Open(ctx, m.env, "channels", 1); err != nil {
		return err
	}
	if m.program, err = buildProgram(ctx); err != nil {
		return err
	}
	// Memory that a GPU may write to, so not a file on a disk.
	if m.folder, err = os.MkdirTemp("/dev/shm", "laxity-bench-"); err != nil {
		return err
	}
	if err := os.Chmod(m.folder, 0o755); err != nil { //nolint:gosec // tenants may run as anybody
		return err
	}
	if m.driver, _, err = m.openDriver(); err != nil {
		return err
	}
	if m.reader, err = exporter.OpenDevice(m.GPU.Device); err != nil {
		return err
	}
	m.limits = limits{goesOn: goesOn, pauseKernel: pauseKernel}
	if m.GPU.Simulated() {
		m.limits = simulatedLimits
	}
	m.enforcer, err = m.newEnforcer(0)
	return err
}

// limits are how long things may take, and the kernel whose end is seen late.
type limits struct {
	goesOn, pauseKernel time.Duration
	maxOff, deadline    time.Duration // of enforcers; 0: theirs
}

// simulatedLimits are longer: the tenants share the cores of a simulated GPU with everything else.
var simulatedLimits = limits{
	goesOn: startLimit, pauseKernel: 6 * time.Second, maxOff: time.Minute, deadline: startLimit,
}

// newEnforcer keeps tenants off for so long at most, 0: as enforcers do by themselves; on a simulated GPU for a minute.
func (m *measurement) newEnforcer(maxOff time.Duration) (*channels.Enforcer, error) {
	return channels.New(channels.Options{
		Driver: m.driver, Dir: m.record(), MaxOff: max(maxOff, m.maxOff), Deadline: m.deadline,
	})
}

// record is the enforcers' folder.
func (m *measurement) record() string { return filepath.Join(m.Dir, "record") }

// openDriver opens a driver that remembers nothing. calls counts those of the system's
// calls that ask the resource manager; nil: they are not known.
func (m *measurement) openDriver() (d driver, calls *atomic.Int64, err error) {
	if socket, ok := strings.CutPrefix(m.GPU.Device, "sim:"); ok {
		return unmarked{simrm.New(socket)}, nil, nil
	}
	kernel := &counter{Kernel: rm.System()}
	version, err := kernel.Driver()
	if err != nil {
		return nil, nil, fmt.Errorf("the version of NVIDIA's driver: %w", err)
	}
	return rm.New(kernel, rm.Options{Proven: []string{version}}), &kernel.calls, nil
}

// unmarked is a driver whose searches need no mark.
type unmarked struct{ channels.Driver }

func (unmarked) Mark(context.Context) error { return nil }

// counter counts the calls to the resource manager.
type counter struct {
	rm.Kernel
	calls atomic.Int64
}

func (c *counter) Ioctl(fd int, request uint32, arg, params []byte) error {
	c.calls.Add(1)
	return c.Kernel.Ioctl(fd, request, arg, params)
}

func (m *measurement) close() error {
	var errs []error
	if m.enforcer != nil {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_, err := m.enforcer.RestoreAll(ctx)
		errs = append(errs, err)
	}
	if m.reader != nil {
		errs = append(errs, m.reader.Close())
	}
	if m.Rig != nil {
		errs = append(errs, m.Close())
	}
	if m.folder != "" {
		errs = append(errs, os.RemoveAll(m.folder))
	}
	return errors.Join(errs...)
}

// poll is how often something is looked at whose moment counts to a millisecond.
const poll = 300 * time.Microsecond

// errLate is what until returns after its limit.
var errLate = errors.New("it takes too long")

// until looks again and again whether something holds, up to a limit.
func (m *measurement) until(ctx context.Context, limit time.Duration, holds func() bool) error {
	for deadline := time.Now().Add(limit); !holds(); {
		if time.Now().After(deadline) {
			return fmt.Errorf("%w: more than %v", errLate, limit)
		}
		if err := bench.Pass(ctx, poll); err != nil {
			return err
		}
	}
	return nil
}
