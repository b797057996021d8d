package actuator_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/laxity/laxity/actuator"
	"github.com/laxity/laxity/actuator/arbiter"
	"github.com/laxity/laxity/actuator/collector"
	"github.com/laxity/laxity/actuator/config"
	"github.com/laxity/laxity/actuator/enforce/channels"
	"github.com/laxity/laxity/exporter/task"
	"github.com/laxity/laxity/internal/rm"
)

// asOneDriver fails the test where a part of the job is switched off alone.
type asOneDriver struct {
	*driver
	t       *testing.T
	job     map[int]bool
	offs    atomic.Int64
	refuses atomic.Bool
}

func (d *asOneDriver) Switch(ctx context.Context, groups []rm.Group, on bool) error {
	for _, g := range groups {
		if d.job[g.PID] && !on {
			d.t.Errorf("process %d is switched off alone", g.PID)
		}
	}
	return d.driver.Switch(ctx, groups, on)
}

func (d *asOneDriver) SwitchAsOne(ctx context.Context, groups []rm.Group, on bool) (time.Duration, error) {
	pids := map[int]bool{}
	for _, g := range groups {
		pids[g.PID] = true
	}
	if !on && len(pids) != len(d.job) {
		d.t.Errorf("off are %v of %v", pids, d.job)
	}
	if !on && d.refuses.Load() {
		return 0, rm.ErrUnsupported
	}
	if !on {
		d.offs.Add(1)
	}
	return d.driver.SwitchAsOne(ctx, groups, on)
}

// gangBench has a server and a trainer on GPU 0, another trainer on GPU 1, and a job with a rank on each.
type gangBench struct {
	*divider
	asOne         *asOneDriver
	metrics       *collector.Metrics
	server, local rm.Process
	ranks         []rm.Process
	other         rm.Process
}

func newGangBench(t *testing.T, mode config.SeveralMode) *gangBench {
	t.Helper()
	b := &gangBench{divider: benchless(t), metrics: collector.New()}
	b.asOne = &asOneDriver{driver: b.driver, t: t, job: map[int]bool{103: true, 203: true}}
	b.bench = newBench(t, func(o *actuator.Options) {
		b.options(o)
		dir := o.StateDir
		o.Mechanisms.SeveralGPUs, o.Metrics = mode, b.metrics
		o.Mechanisms.NewChannels = func() (arbiter.Channels, error) {
			several := b.channels(dir)
			several.Driver, several.AsOne = b.asOne, mode == config.SeveralAsOne
			return channels.New(several)
		}
	})
	b.source.together(func() { // nobody sees the job while it has one rank
		b.source.set(func() { b.source.gpus = append(b.source.gpus, task.GPU{UUID: gpu1, MemoryTotal: 100}) })
		b.server, b.local = b.begin("server", gpu0), b.begin("local", gpu0)
		b.ranks = []rm.Process{b.begin("job", gpu0), b.process(203, gpu1)}
		b.other = b.process(204, gpu1)
		b.busy()
	})
	return b
}

// busy is the next snapshot, in which all but the server have computed.
func (b *gangBench) busy() {
	b.source.set(func() {
		b.source.containers = b.source.containers[:3]
		b.source.tasks = b.source.tasks[:3]
		c := b.source.containers
		c[0].Spec.Release, c[0].Spec.Deadline = task.ReleaseBusy, task.Seconds(0.02)
		c[0].Processes = []task.Process{{PID: b.server.PID, GPUs: []string{gpu0}}}
		c[1].Processes, c[1].SMUtilization = []task.Process{{PID: b.local.PID, GPUs: []string{gpu0}}}, map[string]float64{gpu0: 0.48}
		c[2].Processes = []task.Process{{PID: b.ranks[0].PID, GPUs: []string{gpu0}}, {PID: b.ranks[1].PID, GPUs: []string{gpu1}}}
		c[2].SMUtilization = map[string]float64{gpu0: 0.48, gpu1: 0.48}
		rank := b.source.tasks[2]
		rank.ID, rank.PID, rank.GPUs = "task-rank", b.ranks[1].PID, []string{gpu1}
		other := rank
		other.ID, other.PID, other.ContainerID, other.Container = "task-other", b.other.PID, "other", "name-other"
		b.source.tasks = append(b.source.tasks, rank, other)
		b.source.containers = append(b.source.containers, task.Container{ID: "other", Name: "name-other", Spec: task.Spec{Managed: true},
			Processes: []task.Process{{PID: b.other.PID, GPUs: []string{gpu1}}}, SMUtilization: map[string]float64{gpu1: 0.48}})
	})
}

func (b *gangBench) jobOff() bool {
	return b.Off(b.ranks[0]) == b.Channels(b.ranks[0]) && b.Off(b.ranks[1]) == b.Channels(b.ranks[1])
}

func (b *gangBench) jobOn() bool { return b.Off(b.ranks[0])+b.Off(b.ranks[1]) == 0 }

func (b *gangBench) order(id string) string {
	for _, c := range b.state().Containers {
		if c.ID == id {
			return c.Order
		}
	}
	return ""
}

// TestSeveralGPUsGoOffAsOne: a job on two GPUs takes turns on the one where it is worst placed, and
// goes off and on as one; each GPU gives it a slice of its own.
func TestSeveralGPUsGoOffAsOne(t *testing.T) {
	b := newGangBench(t, config.SeveralAsOne)
	for range 2 {
		b.await("its turn is over", func() bool { b.busy(); return b.jobOff() })
		b.await("it is its turn", func() bool { b.busy(); return b.jobOn() })
	}
	b.await("the other one has a slice beside it", func() bool { b.busy(); return !b.slices(b.other, 2048*time.Microsecond) })
	b.source.end("server")
	b.await("nobody is off without a server", func() bool { b.busyWithout(); return b.jobOn() && b.Off(b.local) == 0 })
	if n := testutil.CollectAndCount(b.metrics.ChannelSkew); n != 2 {
		t.Errorf("%d series of the skew", n)
	}
	if err := b.stop(); err != nil {
		t.Fatal(err)
	}
	b.awaitOwn(b.ranks...)
	b.awaitOwn(b.local, b.other, b.server)
	b.awaitNothingOnRecord()
	if b.asOne.offs.Load() < 2 {
		t.Errorf("it was off %d times", b.asOne.offs.Load())
	}
	if wrong := b.Wrong(); len(wrong) > 0 {
		t.Error(wrong)
	}
}

// busyWithout is busy when the server has ended.
func (b *gangBench) busyWithout() {
	b.busy()
	b.source.set(func() {
		b.source.containers[0].Spec.Release, b.source.containers[0].Spec.Deadline = task.ReleaseProcess, 0
	})
}

// TestSeveralGPUsAreLeftAloneByDefault: nobody calls for it, and the others leave it its part.
func TestSeveralGPUsAreLeftAloneByDefault(t *testing.T) {
	b := newGangBench(t, "")
	b.await("the others are ordered", func() bool { b.busy(); return b.order("local") != "" && b.order("other") != "" })
	b.await("it says why", func() bool {
		b.busy()
		return strings.HasPrefix(b.order("job"), "left as it is: it computes on several GPUs")
	})
	for _, p := range b.ranks {
		if b.wasCalled(p.PID) {
			t.Errorf("process %d was touched", p.PID)
		}
	}
}

// TestAsOneThatFailsIsPutBack: all of it is on with its own slices, and it is tried again later.
func TestAsOneThatFailsIsPutBack(t *testing.T) {
	b := newGangBench(t, config.SeveralAsOne)
	b.asOne.refuses.Store(true)
	b.await("it says why", func() bool { b.busy(); return strings.Contains(b.order("job"), "left as it is: ") })
	if !b.jobOn() {
		t.Error("a part of it is off")
	}
	b.asOne.refuses.Store(false)
	b.await("it is off at another try", func() bool { b.busy(); return b.jobOff() })
}
