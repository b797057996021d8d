package zoo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/laxity/laxity/actuator/decision"
	"github.com/laxity/laxity/actuator/journal"
	"github.com/laxity/laxity/actuator/state"
	"github.com/laxity/laxity/bench"
	"github.com/laxity/laxity/internal/daemon"
	"github.com/laxity/laxity/internal/statefolder"
)

// laxity is Laxity as it is shipped: `laxity up`, or exporter, actuator and guardian as
// programs of their own.
type laxity struct {
	machine  *machine
	folder   string // its state
	state    statefolder.ID
	services bool
	flags    []string

	sees, acts string // addresses of exporter and actuator
	client     http.Client

	mu      sync.Mutex
	running map[string]*daemon.Process // by program
	before  counts                     // of actuators that are gone
	present counts                     // of the one that runs, as last read
	failed  []string                   // what did not come up again
	dead    bool                       // neither actuator nor guardian lives
	alive   time.Time                  // since when one of them does again

	dying sync.Mutex // one death at a time
}

// Programs, as keys of running.
const (
	upProgram       = "laxity"
	exporterProgram = "laxity-exporter"
	actuatorProgram = "laxity-actuator"
	guardianProgram = "guardian"
)

// notStartedError means that Laxity was not ready, so that the round's containers were failed by it.
type notStartedError struct{ error }

func (e *notStartedError) Unwrap() error { return e.error }

// startLaxity starts it for one round.
func (m *machine) startLaxity(ctx context.Context, services bool, flags []string) (*laxity, error) {
	l := &laxity{machine: m, services: services, flags: flags, running: map[string]*daemon.Process{}, client: http.Client{Timeout: 2 * time.Second}}
	var err error
	if l.folder, err = os.MkdirTemp(m.dir, "laxity-"); err != nil {
		return nil, err
	}
	if l.state, err = statefolder.Of(l.stateDir()); err != nil {
		return nil, err
	}
	addresses, err := daemon.FreeAddresses(ctx, 2)
	if err != nil {
		return nil, err
	}
	l.sees, l.acts = addresses[0], addresses[1]
	order := []string{upProgram}
	if services {
		order = []string{exporterProgram, guardianProgram, actuatorProgram}
	}
	for _, program := range order {
		if err := l.begin(ctx, program); err != nil {
			return nil, errors.Join(err, l.stop())
		}
	}
	return l, nil
}

// stateDir is the actuator's.
func (l *laxity) stateDir() string { return filepath.Join(l.folder, "state", "actuator") }

// command is the command line of one of the programs.
func (l *laxity) command(program string) (path string, args []string, ready string, err error) {
	state, lock, device := filepath.Join(l.folder, "state"), filepath.Join(l.folder, "run"), "--device="+l.machine.gpu.Device
	name := program
	switch program {
	case upProgram:
		args = append([]string{"up", device, "--state-dir=" + state, "--lock-dir=" + lock,
			"--web.listen-address=" + l.sees, "--actuator.listen-address=" + l.acts, "--log.level=warn"}, l.flags...)
		ready = l.acts
	case exporterProgram:
		args = []string{"--node=zoo", device, "--state-dir=" + filepath.Join(state, "exporter"),
			"--swap-dir=" + filepath.Join(lock, "swapped"), "--web.listen-address=" + l.sees, "--log.level=warn"}
		ready = l.sees
	case actuatorProgram:
		args = append([]string{"serve", "--node=zoo", device, "--exporter=http://" + l.sees,
			"--state-dir=" + l.stateDir(), "--lock-dir=" + lock, "--guardian=warn", "--web.listen-address=" + l.acts, "--log.level=warn"}, l.flags...)
		ready = l.acts
	case guardianProgram:
		name = actuatorProgram
		args = []string{"guardian", "--state-dir=" + l.stateDir(), device}
	}
	args = append(args, l.machine.engine.flags()...)
	if given := l.machine.env.Args["laxity"]; given != "" {
		return filepath.Join(filepath.Dir(given), name), args, ready, nil
	}
	path, err = daemon.Program(name)
	return path, args, ready, err
}

// begin starts a program and waits until it is ready.
func (l *laxity) begin(ctx context.Context, program string) error {
	path, args, ready, err := l.command(program)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(l.stateDir(), 0o755); err != nil { //nolint:gosec // as the programs do
		return err
	}
	// It ends by stop, not with ctx: a round that is interrupted releases first.
	p, err := daemon.Begin(context.WithoutCancel(ctx), l.folder, path, args...)
	if err != nil {
		return err
	}
	l.mu.Lock()
	l.running[program] = p
	l.mu.Unlock()
	return p.Await(ctx, func() bool {
		if ready == "" {
			return journal.Taken(journal.GuardianLock(l.stateDir()))
		}
		return l.get(ctx, ready, "/-/ready", nil) == nil
	})
}

func (l *laxity) process(program string) *daemon.Process {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.running[program]
}

// dies ends whom a round wants dead, and starts it again after a while.
func (l *laxity) dies(ctx context.Context, d death, all []*specimen) {
	l.dying.Lock()
	defer l.dying.Unlock()
	var programs []string
	switch {
	case !l.services && d.who == guardianDies:
		_ = kill(l.spawnedGuardian()) // the actuator starts another one
		return
	case !l.services:
		if d.who == bothDie {
			_ = kill(l.spawnedGuardian())
		}
		programs = []string{upProgram}
	case d.who == exporterDies:
		programs = []string{exporterProgram}
	case d.who == guardianDies:
		programs = []string{guardianProgram}
	case d.who == actuatorDies || d.who == laxityEnds:
		programs = []string{actuatorProgram}
	case d.who == bothDie:
		programs = []string{guardianProgram, actuatorProgram}
	}
	if d.who == bothDie {
		l.mu.Lock()
		l.dead = true
		l.mu.Unlock()
		defer func() {
			l.mu.Lock()
			l.dead, l.alive = false, time.Now()
			l.mu.Unlock()
		}()
	}
	if d.who == laxityEnds {
		awaitChanged(ctx, all)
	}
	l.count(ctx)
	for _, program := range programs {
		if p := l.process(program); p != nil {
			l.mu.Lock()
			l.before, l.present = l.counted(), counts{}
			l.mu.Unlock()
			if d.who == laxityEnds {
				if err := p.Stop(); err != nil {
					l.fail("%s: %v", program, err)
				}
				continue
			}
			_ = p.Kill() // it may have ended by itself: it is started again either way
		}
	}
	l.undone(ctx, d, all)
	_ = bench.Pass(ctx, d.again) // the round is over: it comes up all the same, to tidy up
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanup)
	defer cancel()
	for _, program := range programs {
		if err := l.begin(ctx, program); err != nil {
			l.fail("%s does not come up after a kill: %v", program, err)
		}
	}
}

// fail notes something that has to do with no container.
func (l *laxity) fail(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.failed = append(l.failed, fmt.Sprintf(format, args...))
}

// spawnedGuardian is the guardian that `laxity up` started; 0: there is none.
func (l *laxity) spawnedGuardian() int {
	for _, pid := range guardiansOf(l.stateDir()) {
		return pid
	}
	return 0
}

// guardiansOf finds the guardians of a state folder.
func guardiansOf(stateDir string) (pids []int) {
	list, _ := os.ReadDir("/proc")
	for _, entry := range list {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		b, _ := os.ReadFile(filepath.Join("/proc", entry.Name(), "cmdline"))
		args := strings.Split(string(b), "\x00")
		if len(args) > 2 && args[1] == "guardian" && strings.Contains(string(b), "--state-dir="+stateDir+"\x00") {
			pids = append(pids, pid)
		}
	}
	return pids
}

func kill(pid int) error {
	if pid <= 0 {
		return nil
	}
	return syscall.Kill(pid, syscall.SIGKILL)
}

// get reads JSON from one of the programs; into may be nil.
func (l *laxity) get(ctx context.Context, address, path string, into any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+path, nil)
	if err != nil {
		return err
	}
	resp, err := l.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", path, resp.Status)
	}
	if into == nil {
		return nil
	}
	return json.NewDecoder(resp.Body).Decode(into)
}

// reasons is what is on record for containers that stand, by id; empty: nothing, or
// nobody is there. An actuator that takes too long has not answered.
func (l *laxity) reasons(ctx context.Context) (by map[string]string, answered bool) {
	by = map[string]string{}
	var s state.State
	if err := l.get(ctx, l.acts, "/api/v1/state", &s); err != nil {
		late, ok := errors.AsType[net.Error](err)
		return by, ctx.Err() == nil && (!ok || !late.Timeout())
	}
	for _, c := range s.Containers {
		switch {
		case c.Waits != "":
			by[c.ID] = "waits: " + c.Waits
		case c.MemoryWaits != "":
			by[c.ID] = "waits for memory: " + c.MemoryWaits
		case c.Swapped != "":
			by[c.ID] = "swapped: " + c.Swapped
		case c.Off && c.Order != "":
			by[c.ID] = c.Order
		}
	}
	for _, h := range s.Holds {
		by[h.ContainerID] = "held: " + h.Reason
	}
	return by, true
}

// nobodyLives: neither actuator nor guardian does, or one of them has just begun to
// tidy up. Nobody can release anybody then.
func (l *laxity) nobodyLives() bool {
	if l == nil {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.dead || time.Since(l.alive) < slack
}

// tells is what the actuator says about a container, for a person.
func (l *laxity) tells(s *specimen) string {
	if l == nil {
		return "without Laxity"
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	engine := ""
	if c, err := s.machine.engine.inspect(ctx, s.id); err == nil {
		engine = fmt.Sprintf("the engine says %s; ", c.word)
	}
	var state state.State
	if err := l.get(ctx, l.acts, "/api/v1/state", &state); err != nil {
		return engine + "the actuator does not answer: " + err.Error()
	}
	text := engine + "the actuator does not know it"
	for _, c := range state.Containers {
		if c.ID == s.id {
			text = engine + fmt.Sprintf("standing %v, waits %q, memory %q", c.Standing, c.Waits, c.MemoryWaits)
		}
	}
	if state.Trouble+state.Breaker+state.Standby != "" {
		text += fmt.Sprintf(" (%s %s %s)", state.Trouble, state.Breaker, state.Standby)
	}
	var decisions []decision.Decision
	if l.get(ctx, l.acts, "/api/v1/decisions?limit=30&container="+url.QueryEscape(s.name), &decisions) == nil {
		decisions = slices.DeleteFunc(decisions, func(d decision.Decision) bool { return d.Kind == "alert" })
		for _, d := range decisions[max(0, len(decisions)-5):] {
			text += fmt.Sprintf("; %s %s %s: %s %s", d.Time.Format("05.000"), d.Kind, d.Result, d.Reason, d.Error)
		}
	}
	return text
}

// strayMetric counts who was found stopped by us with nobody wanting it, changesMetric the
// time slices and channels that were changed.
const (
	strayMetric   = "laxity_actuator_stray_stops_total"
	changesMetric = "laxity_actuator_channel_changes_total"
)

// counts are what the actuator counts.
type counts struct{ strays, changes float64 }

// counted is so much until now. The caller holds mu, or nobody else counts.
func (l *laxity) counted() counts {
	return counts{l.before.strays + l.present.strays, l.before.changes + l.present.changes}
}

// count notes the counters as they are now. An actuator without them counts nothing.
func (l *laxity) count(ctx context.Context) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+l.acts+"/metrics", nil)
	if err != nil {
		return
	}
	resp, err := l.client.Do(req)
	if err != nil {
		return
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(resp.Body)
	var sum counts
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		if len(f) != 2 {
			continue
		}
		n, _ := strconv.ParseFloat(f[1], 64)
		switch name, _, _ := strings.Cut(f[0], "{"); name {
		case strayMetric:
			sum.strays += n
		case changesMetric:
			sum.changes += n
		}
	}
	l.mu.Lock()
	l.present = sum
	l.mu.Unlock()
}

// stop ends it and returns what could not be ended.
func (l *laxity) stop() error {
	var errs []error
	for _, program := range []string{actuatorProgram, upProgram, guardianProgram, exporterProgram} {
		if p := l.process(program); p != nil {
			if err := p.Stop(); err != nil {
				errs = append(errs, err)
			}
		}
	}
	return errors.Join(errs...)
}

// guardianPatience is how long a guardian may live on when nothing is left to watch.
const guardianPatience = 5 * time.Second

// pins is a pattern of the folders in which an actuator with our state folder keeps
// what outlives it in the kernel.
func (l *laxity) pins() string {
	return "/sys/fs/bpf/laxity-" + string(l.state) + "-*"
}

// left returns what it left behind after stop, and takes that away.
func (l *laxity) left(ctx context.Context) (all []string) {
	for began := time.Now(); len(guardiansOf(l.stateDir())) > 0; {
		if time.Since(began) > guardianPatience || bench.Pass(ctx, 20*time.Millisecond) != nil {
			for _, pid := range guardiansOf(l.stateDir()) {
				all = append(all, fmt.Sprintf("guardian %d lives on", pid))
				_ = kill(pid)
			}
			break
		}
	}
	if j, err := journal.Open(l.stateDir()); err == nil {
		holds, err := j.List()
		if err != nil {
			all = append(all, err.Error())
		}
		for _, h := range holds {
			all = append(all, fmt.Sprintf("a hold of %s: %s", h.Container, h.Reason))
		}
	}
	for _, f := range l.recorded() {
		all = append(all, "channels on record: "+f)
	}
	pins, _ := filepath.Glob(filepath.Join(l.pins(), "*"))
	for _, p := range pins {
		all = append(all, "pinned: "+p)
	}
	for _, pattern := range []string{filepath.Join(l.folder, "run", "swapped", "*"), filepath.Join(l.stateDir(), "swaps", "*", "*")} {
		found, _ := filepath.Glob(pattern)
		for _, f := range found {
			all = append(all, "left: "+f)
		}
	}
	folders, _ := filepath.Glob(l.pins())
	for _, f := range folders {
		_ = os.RemoveAll(f)
	}
	_ = os.RemoveAll(l.channelRecords())
	_ = os.RemoveAll(l.folder)
	return all
}
