package zoo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/laxity/laxity/bench"
	"github.com/laxity/laxity/bench/tenant"
	"github.com/laxity/laxity/exporter/device/sim/cuda"
)

// specimen is one container of a round, while it lives and afterwards.
type specimen struct {
	drawn
	number  int
	machine *machine
	id      string
	name    string
	folder  string // of its result
	doomed  bool   // the round kills it

	mu      sync.Mutex
	pid     int       // of its first process; 0 before it runs
	calls   time.Time // when the engine was asked to start it
	started time.Time // when it had
	ended   bool
	end     end
	// overRestart: it lived while the engine was restarted.
	overRestart bool
	// shaken: the engine went down in the moment in which it started the container.
	shaken bool
}

// end is how a container ended.
type end struct {
	code    int
	result  string // its last line; empty: it said nothing
	conts   int    // SIGCONTs that its processes saw, where they count them
	seconds float64
	late    bool // it had not ended in time, and was removed
	// unstarted: the engine went down while it started the container, and either cannot
	// start it any more or has ended it. That is the engine's doing.
	unstarted bool
	// deaf: the engine was restarted meanwhile, so that its code may be lost.
	deaf bool
}

// right reports whether the container ended as its kind means to, with the right result.
func (e end) right(k kind) bool { return !e.late && e.codeOf(k) && e.resultOf(k) }

func (e end) codeOf(k kind) bool { return e.code == k.code || e.deaf && e.resultOf(k) }

func (e end) resultOf(k kind) bool { return k.silent || strings.HasPrefix(e.result, "right") }

func (e end) String() string {
	if e.unstarted {
		return "fell with the engine"
	}
	if e.late {
		return "did not end"
	}
	return fmt.Sprintf("status %d, %q, after %.1f s", e.code, e.result, e.seconds)
}

// simulated kernels take so long, by the program's first argument.
func kernelSeconds(verb string) string {
	if verb == "server" {
		return "0.004"
	}
	return "0.02"
}

// create makes the container of d; it does not run yet.
func (m *machine) create(ctx context.Context, way string, number int, d drawn) (*specimen, error) {
	s := &specimen{drawn: d, number: number, machine: m, name: fmt.Sprintf("laxity-%s-%d-%s-%d", m.name, m.made.Add(1), way, number)}
	s.folder = filepath.Join(m.dir, "results", s.name)
	if err := os.MkdirAll(s.folder, 0o777); err != nil { //nolint:gosec // tenants run as anybody
		return nil, err
	}
	if err := os.Chmod(s.folder, 0o777); err != nil { //nolint:gosec // tenants run as anybody
		return nil, err
	}
	labels := map[string]string{tenant.Label: m.name}
	for k, v := range d.labels {
		labels[k] = v
	}
	command := append(append(slices.Clone(m.programs[d.kind.from]), d.kind.verb), d.args...)
	env := append(slices.Clone(m.environ), "ZOO_OUT="+resultsIn+"/result")
	if d.countsStops() {
		env = append(env, "ZOO_CONTS=1")
	}
	if m.gpu.Simulated() {
		command = append(command, "n=8192") // its copies are as slow as those of large matrices
		env = append(env, cuda.EnvKernelSeconds+"="+kernelSeconds(d.kind.verb))
	}
	var err error
	if s.id, s.name, err = m.engine.create(ctx, form{
		name: s.name, labels: labels, command: command, environ: env, user: d.user,
		binds: append(slices.Clone(m.binds), bind{from: s.folder, to: resultsIn}), devices: m.devices,
	}); err != nil {
		return nil, fmt.Errorf("create container %s: %w", filepath.Base(s.folder), err)
	}
	return s, nil
}

// start starts the container, as soon as there is an engine.
func (s *specimen) start(ctx context.Context) error {
	for tries := 0; ; tries++ {
		s.mu.Lock()
		s.calls = time.Now()
		s.mu.Unlock()
		err := s.machine.engine.start(ctx, s.id)
		if err == nil {
			break
		}
		if !s.machine.engine.gone(err) {
			if tries > 0 { // the engine died while it was at it
				return errUnstarted
			}
			return fmt.Errorf("start container %s: %w", s.name, err)
		}
		s.mu.Lock()
		s.shaken = true
		s.mu.Unlock()
		if err := bench.Pass(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
	s.mu.Lock()
	s.started = time.Now()
	s.mu.Unlock()
	if c, err := s.machine.engine.inspect(ctx, s.id); err == nil {
		s.mu.Lock()
		s.pid = c.pid // 0 when it has ended already
		s.mu.Unlock()
	}
	return nil
}

// errUnstarted is that the engine can start a container no more.
var errUnstarted = errors.New("the engine died while it started the container")

// neverRan notes that the container was not started.
func (s *specimen) neverRan() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.end, s.ended = end{unstarted: true}, true
}

// wait waits for the container's end, over restarts of the engine.
func (s *specimen) wait(ctx context.Context) error {
	for {
		err := s.machine.engine.wait(ctx, s.id)
		if err == nil {
			return s.read(ctx)
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if errors.Is(err, errNotThere) {
			return err
		}
		if err := bench.Pass(ctx, 50*time.Millisecond); err != nil {
			return err
		}
	}
}

// read asks how the container ended.
func (s *specimen) read(ctx context.Context) error {
	c, err := s.machine.engine.inspect(ctx, s.id)
	if err != nil {
		return err
	}
	e := end{code: c.code}
	if !c.started.IsZero() && !c.stopped.IsZero() {
		e.seconds = c.stopped.Sub(c.started).Seconds()
	}
	text, _ := os.ReadFile(filepath.Join(s.folder, "result")) // absent: it said nothing
	for line := range bytes.Lines(text) {
		line := strings.TrimSpace(string(line))
		var conts int
		if _, err := fmt.Sscanf(line, "conts %d", &conts); err == nil {
			e.conts += conts
			continue
		}
		e.result = line
	}
	s.mu.Lock()
	e.deaf = s.overRestart
	e.unstarted = s.shaken && !e.right(s.kind)
	s.end, s.ended = e, true
	s.mu.Unlock()
	return nil
}

// how returns how it ended; false: it has not.
func (s *specimen) how() (end, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.end, s.ended
}

// process returns the container's first process; 0 while it does not run.
func (s *specimen) process() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return 0
	}
	return s.pid
}

// said quotes the end of what the container printed.
func (s *specimen) said() string {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	text := strings.Join(strings.Fields(s.machine.engine.output(ctx, s.id)), " ")
	return text[max(0, len(text)-400):]
}

// remove ends and removes it, also when the caller's context is over.
func (s *specimen) remove() error {
	ctx, cancel := context.WithTimeout(context.Background(), cleanup)
	defer cancel()
	return errors.Join(s.machine.engine.remove(ctx, s.id), os.RemoveAll(s.folder))
}
