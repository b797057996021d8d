package zoo

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/laxity/laxity/bench"
	"github.com/laxity/laxity/internal/cgroup"
)

const (
	// tick is the time between two looks at the processes; every threadsEvery-th one
	// goes through all threads, else the first one of a process stands for all: a stop
	// is the whole process's.
	tick         = 20 * time.Millisecond
	threadsEvery = 10
	// patience is how long a process may stand with nobody giving a reason.
	patience = time.Second + slack
	// slack is what asking for a reason takes.
	slack = 200 * time.Millisecond
	// askEvery is the time between two questions to the actuator, while anybody stands. An answer
	// speaks for the time since the one before, but for no more than askFor.
	askEvery, askFor = 100 * time.Millisecond, 500 * time.Millisecond
	// silence is how long an actuator may be late with an answer: then it gives no reason.
	silence = 10 * time.Second
	// countEvery is the time between two looks at the counters.
	countEvery = time.Second
	// freezing: what runc freezes for a moment by itself does not count.
	freezing = 100 * time.Millisecond
)

// trouble is what a watcher found.
type trouble struct {
	container int
	// stray: nobody had a right to stop it at all. Else it stood with no reason.
	stray bool
	what  string
}

// stand is one process, or one frozen container, that stands.
type stand struct {
	since    time.Time     // it was first seen so
	judged   time.Time     // the last answer about it was asked for, or since
	without  time.Duration // a reason, by the answers since there was one
	seen     time.Time
	reported bool
}

// judge takes note of an answer. Time for which there is none says nothing: the actuator may be late with it.
func (st *stand) judge(a answer, id string) {
	switch {
	case !a.at.After(st.judged):
		return
	case a.by[id] != "":
		st.without = 0
	default:
		st.without += min(a.at.Sub(st.judged), askFor)
	}
	st.judged = a.at
}

// watcher polls the states of all processes of a round's containers.
type watcher struct {
	laxity *laxity // who gives reasons
	all    []*specimen

	groups   map[int]cgroup.Group // by container
	stands   map[string]*stand    // by container, PID and start time
	last     time.Time
	standing atomic.Bool

	mu       sync.Mutex
	answer   answer
	troubles []trouble
	told     map[int]bool // containers with a trouble
	longest  float64      // seconds that anybody stood
	off      float64      // seconds that anybody's channels were off
}

// answer is what the actuator said.
type answer struct {
	at time.Time         // it was asked
	by map[string]string // reason by container id
}

func newWatcher(l *laxity, all []*specimen) *watcher {
	return &watcher{laxity: l, all: all, groups: map[int]cgroup.Group{}, stands: map[string]*stand{}, told: map[int]bool{}}
}

// run looks until ctx ends.
func (w *watcher) run(ctx context.Context) {
	var wait sync.WaitGroup
	defer wait.Wait()
	wait.Go(func() { w.ask(ctx) })
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			w.look(n%threadsEvery == 0)
		}
	}
}

// ask keeps the answer fresh while anybody stands. It is no part of look: an actuator
// that takes its time must not keep us from looking.
func (w *watcher) ask(ctx context.Context) {
	if w.laxity == nil {
		return
	}
	heard := time.Now()
	for counted := heard; bench.Pass(ctx, askEvery) == nil; {
		if time.Since(counted) > countEvery {
			w.laxity.count(ctx)
			counted = time.Now()
		}
		asked := time.Now()
		if !w.standing.Load() {
			heard = asked
			continue
		}
		by, answered := w.laxity.reasons(ctx)
		if answered {
			heard = asked
		} else if asked.Sub(heard) < silence {
			continue
		}
		w.mu.Lock()
		w.answer = answer{at: asked, by: by}
		w.mu.Unlock()
	}
}

// answered is the last answer. Where there is no Laxity nobody ever gives a reason.
func (w *watcher) answered(now time.Time) answer {
	if w.laxity == nil {
		return answer{at: now}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.answer
}

func (w *watcher) look(threads bool) {
	now := time.Now()
	gap := now.Sub(w.last) > 10*tick && !w.last.IsZero() // we did not run ourselves: time that nobody saw
	w.last = now
	for _, s := range w.all {
		pid := s.process()
		if pid == 0 {
			continue
		}
		group, ok := w.groupOf(s)
		if !ok {
			continue
		}
		if frozen(group) {
			w.note(s, "frozen", now, gap)
		}
		for _, p := range processesOf(group) {
			state, start := stateOf(p, threads)
			if state == 'T' || state == 't' {
				w.note(s, fmt.Sprintf("%d %s", p, start), now, gap)
			}
			w.lookAtChannels(s, p, start, now, gap)
		}
	}
	for key, st := range w.stands {
		if st.seen != now {
			delete(w.stands, key)
		}
	}
	w.standing.Store(len(w.stands) > 0)
}

// groupOf is the control group of a container that runs.
func (w *watcher) groupOf(s *specimen) (cgroup.Group, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if g, ok := w.groups[s.number]; ok {
		return g, true
	}
	g, err := groupOf(s)
	if err != nil {
		return g, false
	}
	w.groups[s.number] = g
	return g, true
}

func groupOf(s *specimen) (cgroup.Group, error) { return cgroup.Of("/proc", s.process(), "freezer") }

// note notes that somebody stands, and judges it.
func (w *watcher) note(s *specimen, what string, now time.Time, gap bool) {
	key := fmt.Sprintf("%d %s", s.number, what)
	st := w.stands[key]
	if st == nil || gap && now.Sub(st.seen) > 10*tick {
		st = &stand{since: now, judged: now}
		w.stands[key] = st
	}
	st.seen = now
	frozen, off := what == "frozen", isOff(what)
	stood := now.Sub(st.since)
	longest := &w.longest
	if off {
		longest = &w.off
	}
	w.mu.Lock()
	*longest = max(*longest, stood.Seconds())
	w.mu.Unlock()
	if st.reported || s.kind.stops && !frozen && !off {
		return
	}
	if s.untouchable() {
		if !frozen || stood > freezing {
			st.reported = true
			w.report(s, true, what, stood)
		}
		return
	}
	if w.laxity.nobodyLives() {
		st.judged, st.without = now, 0
		return
	}
	if st.judge(w.answered(now), s.id); st.without > patience {
		st.reported = true
		w.report(s, false, what, stood)
	}
}

func (w *watcher) report(s *specimen, stray bool, what string, stood time.Duration) {
	text := fmt.Sprintf("container %d (%s, %v) stands for %.2f s (%s): %s", s.number, s.kind.name, labelText(s.labels), stood.Seconds(), what, w.laxity.tells(s))
	if fields := strings.Fields(what); len(fields) > 1 {
		if pid, err := strconv.Atoi(fields[len(fields)-2]); err == nil {
			text += "; " + describe(pid)
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.told[s.number] { // the first one says it
		w.told[s.number] = true
		w.troubles = append(w.troubles, trouble{container: s.number, stray: stray, what: text})
	}
}

// found returns what there was until now.
func (w *watcher) found() (all []trouble, longest, off float64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.troubles), w.longest, w.off
}

func frozen(g cgroup.Group) bool {
	if g.V2 {
		b, _ := os.ReadFile(filepath.Join(g.Dir, "cgroup.events"))
		return strings.Contains(string(b), "frozen 1")
	}
	b, _ := os.ReadFile(filepath.Join(g.Dir, "freezer.state"))
	return strings.TrimSpace(string(b)) == "FROZEN"
}

func processesOf(g cgroup.Group) (pids []int) {
	b, _ := os.ReadFile(filepath.Join(g.Dir, "cgroup.procs")) // gone: it has ended
	for _, field := range strings.Fields(string(b)) {
		if pid, err := strconv.Atoi(field); err == nil && pid > 0 {
			pids = append(pids, pid)
		}
	}
	return pids
}

// stateOf reads the state of a process and when it began; with threads T counts if
// any thread is in it. 0: it is gone.
func stateOf(pid int, threads bool) (state byte, start string) {
	state, start = readStat(fmt.Sprintf("/proc/%d/stat", pid))
	if state == 'T' || state == 't' || !threads {
		return state, start
	}
	list, _ := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	for _, t := range list {
		if of, _ := readStat(fmt.Sprintf("/proc/%d/task/%s/stat", pid, t.Name())); of == 'T' || of == 't' {
			return of, start
		}
	}
	return state, start
}

func readStat(path string) (state byte, start string) {
	b, err := os.ReadFile(path)
	if err != nil {
		return 0, ""
	}
	_, after, _ := strings.Cut(string(b[strings.LastIndexByte(string(b), ')')+1:]), " ")
	f := strings.Fields(after)
	if len(f) < 20 {
		return 0, ""
	}
	return f[0][0], f[19]
}

// describe says what a process is doing: name, state and wait channel of its threads.
func describe(pid int) string {
	name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	text := fmt.Sprintf("PID %d %s:", pid, strings.TrimSpace(string(name)))
	list, _ := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	count := map[string]int{}
	for _, t := range list {
		at := fmt.Sprintf("/proc/%d/task/%s/", pid, t.Name())
		state, _ := readStat(at + "stat")
		wchan, _ := os.ReadFile(at + "wchan")
		count[fmt.Sprintf("%c in %s", state, wchan)]++
	}
	for what, n := range count {
		text += fmt.Sprintf(" %d×%s", n, what)
	}
	status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	for line := range strings.Lines(string(status)) {
		if strings.HasPrefix(line, "SigPnd") || strings.HasPrefix(line, "ShdPnd") || strings.HasPrefix(line, "TracerPid") {
			text += " " + strings.Join(strings.Fields(line), "")
		}
	}
	return text
}

func labelText(labels map[string]string) string {
	var all []string
	for k, v := range labels {
		all = append(all, strings.TrimPrefix(k, "laxity.")+"="+v)
	}
	slices.Sort(all)
	if len(all) == 0 {
		return "no label"
	}
	return strings.Join(all, " ")
}
