package actuator_test

import (
	"os"
	"testing"
	"time"

	"github.com/laxity/laxity/actuator"
	"github.com/laxity/laxity/actuator/enforce/channels"
	"github.com/laxity/laxity/actuator/enforce/channels/channelstest"
	"github.com/laxity/laxity/actuator/enforce/proc"
	"github.com/laxity/laxity/internal/rm"
)

// An actuator that starts lets on whom a former one left off its GPU, with no guardian.
func TestStartLetsChannelsOn(t *testing.T) {
	m, run := channelstest.NewMachine(), t.TempDir()
	stat, _ := proc.ReadStat("/proc", os.Getpid())
	p := rm.Process{PID: os.Getpid(), Start: stat.Start}
	m.Adopt(p, gpu0)
	with := func(o *actuator.Options) { o.Channels, o.RunDir = m, run }
	b := newBench(t, with)
	if err := b.stop(); err != nil {
		t.Fatal(err)
	}
	former, err := channels.New(channels.Options{Driver: m, Dir: channels.Folder(run, b.dir)})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := former.Apply(t.Context(), channels.Target{Processes: []rm.Process{p}}, channels.Standing{Off: true, Asked: true, Lease: time.Hour}); err != nil || m.Off(p) == 0 {
		t.Fatal(err)
	}
	b.restart(with)
	b.await("its channels are on", func() bool { return m.Off(p) == 0 })
	if n, err := former.Pending(); n != 0 || err != nil {
		t.Errorf("%d on record, %v", n, err)
	}
}
