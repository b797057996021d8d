package channeldriver_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/laxity/laxity/actuator/enforce"
	"github.com/laxity/laxity/actuator/enforce/channels"
	"github.com/laxity/laxity/actuator/enforce/channels/channelstest"
	"github.com/laxity/laxity/exporter"
	"github.com/laxity/laxity/exporter/holds"
	"github.com/laxity/laxity/internal/rm"
)

// The exporter reads what the actuator writes, where it writes it.
func TestExporterLearnsWhoIsOff(t *testing.T) {
	if d := filepath.Dir(channels.Folder(enforce.RunDir, "state")); d != holds.DefaultDir {
		t.Errorf("the actuator has its records in %s, the exporter looks in %s", d, holds.DefaultDir)
	}
	stat, err := exporter.NewProcesses("/proc").Stat(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	m, run := channelstest.NewMachine(), t.TempDir()
	p := rm.Process{PID: os.Getpid(), Start: uint64(stat.Started / (10 * time.Millisecond))}
	m.Adopt(p, "GPU-1")
	e, err := channels.New(channels.Options{Driver: m, Dir: channels.Folder(run, "state"),
		MaxOff: time.Minute, Deadline: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	reported := make(chan map[int]time.Duration)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	go holds.Dir(filepath.Join(run, "channels")).Follow(ctx, func(off map[int]time.Duration, _ time.Time) {
		select {
		case reported <- off:
		case <-ctx.Done():
		}
	}, func(err error) { t.Error(err) })
	want := func(off bool) {
		t.Helper()
		for {
			if is := <-reported; off && is[p.PID] == stat.Started || !off && len(is) == 0 {
				return
			}
		}
	}
	apply := func(s channels.Standing) {
		t.Helper()
		if _, err := e.Apply(ctx, channels.Target{Processes: []rm.Process{p}}, s); err != nil {
			t.Fatal(err)
		}
	}
	want(false)
	apply(channels.Standing{Slice: time.Millisecond, Off: true})
	want(true)
	apply(channels.Standing{Slice: time.Millisecond})
	want(false)
	apply(channels.Standing{Off: true})
	want(true)
	if _, err := e.RestoreAll(ctx); err != nil {
		t.Fatal(err)
	}
	want(false)
}
