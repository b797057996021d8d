package channels

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/laxity/laxity/actuator/journal"
	"github.com/laxity/laxity/bench"
	"github.com/laxity/laxity/exporter/task"
	"github.com/laxity/laxity/internal/rm"
)

// What is killed.
const (
	killedOne  = "laxity up"
	killedBoth = "laxity up and its guardian"
)

const (
	// window is in which a kill falls after somebody is off: several turns begin in it.
	window = 500 * time.Millisecond
	// offMost is how long to wait for that. Nobody is off before the exporter has measured for a while.
	offMost = 5 * time.Second
	// undoneMost is how long the undoing may take before somebody counts as stuck.
	undoneMost = 10 * time.Second
	// every is between two requests of the server, requestKernel how long each takes.
	every, requestKernel = 30 * time.Millisecond, time.Millisecond
	// batchKernel is that of the others.
	batchKernel = 20 * time.Millisecond
)

// tenantOfKills is one of those whom laxity up orders.
type tenantOfKills struct {
	*subject
	groups []rm.Group
	own    []time.Duration // their slices before
}

// kills kills a laxity up that takes turns among three containers beside a server.
func (m *measurement) kills(ctx context.Context) (rows []bench.Row, err error) {
	u, err := m.newUp(ctx)
	if err != nil {
		return nil, errCannot{err.Error()}
	}
	defer func() { err = errors.Join(err, u.stop(ctx)) }()
	// Once while nobody computes: then it tests itself, and remembers that.
	if err := u.start(ctx, "never"); err != nil {
		return nil, err
	}
	if err := u.stop(ctx); err != nil {
		return nil, err
	}
	tenants, err := m.crowd(ctx)
	defer func() {
		for _, t := range tenants {
			err = errors.Join(err, t.close())
		}
	}()
	if err != nil {
		return nil, err
	}
	defer serve(ctx, tenants[0].subject)()
	for i, until := 0, time.Now().Add(m.how.limit); i < m.how.kills && time.Now().Before(until); i++ {
		way := killedOne
		if i%2 == 1 {
			way = killedBoth
		}
		least := len(tenants)
		if i%4 >= 2 { // while it only begins to order them
			least = 1
		}
		r, err := m.kill(ctx, u, way, tenants, least)
		if err != nil {
			return rows, fmt.Errorf("kill %d: %w", i+1, err)
		}
		rows = append(rows, r)
		m.progress("kills", i+1, m.how.kills)
	}
	for _, t := range tenants {
		err := m.finish(ctx, t.subject)
		rows = append(rows, bench.Row{"way": "results", "wrong": err != nil, "compared": !m.GPU.Simulated()})
	}
	return rows, nil
}

// crowd starts a server with a short deadline and three that compute all the time: among
// these there are turns.
func (m *measurement) crowd(ctx context.Context) (all []tenantOfKills, err error) {
	if err := m.driver.Mark(ctx); err != nil {
		return nil, err
	}
	server := work{name: "server", kernel: requestKernel, kernels: 1,
		labels: map[string]string{task.LabelRelease: string(task.ReleaseBusy), task.LabelDeadline: "20ms"}}
	batch := work{name: "batch", kernel: batchKernel, kernels: endless, labels: map[string]string{task.LabelClass: string(task.ClassBatch)}}
	for _, w := range []work{server, batch, batch, batch} {
		s, err := m.start(ctx, w)
		if err != nil {
			return all, err
		}
		t := tenantOfKills{subject: s}
		all = append(all, t)
		if t.groups, err = m.driver.Find(ctx, s.process); err != nil {
			return all, err
		}
		if len(t.groups) == 0 {
			return all, fmt.Errorf("%s has no channels", s.Name)
		}
		if err := m.until(ctx, startLimit, func() bool { return s.Done.Load() > 0 }); err != nil { // its slice is set
			return all, err
		}
		for _, g := range t.groups {
			d, err := m.driver.Slice(ctx, g)
			if err != nil {
				return all, err
			}
			t.own = append(t.own, d)
		}
		all[len(all)-1] = t
	}
	return all, nil
}

// serve sends a server requests, until stop.
func serve(ctx context.Context, s *subject) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for bench.Pass(ctx, every) == nil {
			s.Launch.Add(1)
		}
	}()
	return func() { cancel(); <-done }
}

// kill starts laxity up, kills it at a random moment after it has at least so many on record, and
// says how long it took until everybody was on with its own slice: from the kill, or from the next
// start if its guardian died too.
func (m *measurement) kill(ctx context.Context, u *up, way string, tenants []tenantOfKills, least int) (bench.Row, error) {
	if err := u.start(ctx, "always"); err != nil {
		return nil, err
	}
	ordered := func() bool { n, err := u.record.Pending(); return err == nil && n >= least }
	if err := m.until(ctx, startLimit, ordered); err != nil {
		return nil, fmt.Errorf("laxity up does not order %d of %d: %w\n%s", least, len(tenants), err, u.process.Said())
	}
	// Where nobody is ever off, slices alone are undone.
	if u.patient && m.until(ctx, offMost, func() bool { return u.off() > 0 }) != nil {
		u.patient = false
		m.env.Log("kills: nobody is off within %v; from now on it is not waited for", offMost)
	}
	moment := time.Duration(m.random.Int64N(int64(window)))
	if err := bench.Pass(ctx, moment); err != nil {
		return nil, err
	}
	pending, err := u.record.Pending()
	if err != nil {
		return nil, err
	}
	r := bench.Row{"way": way, "moment": moment.Seconds(), "off": u.off(), "left": pending}
	began := time.Now()
	if way == killedBoth {
		for _, pid := range u.guardians() {
			_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended
		}
	}
	// Its exit takes up to a second, in which the kernel removes its probes: what is undone meanwhile counts from the kill.
	dead := u.process.Ended()
	go u.process.Kill() //nolint:errcheck // it may have ended
	if way == killedBoth {
		<-dead
		if err := m.until(ctx, undoneMost, func() bool { return !journal.Taken(journal.GuardianLock(u.state)) }); err != nil {
			return nil, fmt.Errorf("the guardian is not dead: %w", err)
		}
		r["left"], _ = u.record.Pending()
		began = time.Now()
		if err := u.begin(ctx, "never"); err != nil {
			return nil, err
		}
	}
	r["stuck"] = m.until(ctx, undoneMost, func() bool { n, err := u.record.Pending(); return err == nil && n == 0 }) != nil
	r["record_s"] = time.Since(began).Seconds()
	wrong, stuck, err := m.own(ctx, tenants)
	r["wrong"], r["stuck"] = wrong, r["stuck"] == true || stuck
	r["undone_s"] = time.Since(began).Seconds()
	<-dead
	return r, errors.Join(err, u.stop(ctx))
}

// own reports whether a slice is not its group's own, and whether somebody does not compute.
func (m *measurement) own(ctx context.Context, tenants []tenantOfKills) (wrong, stuck bool, err error) {
	was := make([]uint32, len(tenants))
	for i, t := range tenants {
		was[i] = t.Beat.Load()
	}
	for _, t := range tenants {
		for i, g := range t.groups {
			d, err := m.driver.Slice(ctx, g)
			if err != nil {
				return wrong, stuck, err
			}
			wrong = wrong || d != t.own[i]
		}
	}
	for i, t := range tenants {
		stuck = stuck || m.until(ctx, undoneMost, func() bool { return t.Beat.Load() != was[i] }) != nil
	}
	return wrong, stuck, nil
}
