package channeldriver

import (
	"errors"
	"testing"
	"time"

	"github.com/laxity/laxity/actuator/enforce/channels"
	"github.com/laxity/laxity/actuator/enforce/channels/channelstest"
	"github.com/laxity/laxity/internal/rm"
)

// A guardian that began before the driver was there undoes what is on record once it is.
func TestDriverThatComesLater(t *testing.T) {
	m := channelstest.NewMachine()
	p := m.Start(1, "GPU-0")
	dir := t.TempDir()
	open := func(d channels.Driver) *channels.Enforcer {
		e, err := channels.New(channels.Options{Driver: d, Dir: dir, State: m.State, MaxOff: time.Hour, Deadline: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	if _, err := open(m).Apply(t.Context(), channels.Target{Processes: []rm.Process{p}}, channels.Standing{Off: true}); err != nil || m.Off(p) == 0 {
		t.Fatalf("%d channels are off: %v", m.Off(p), err)
	}
	var there channels.Driver
	opened := 0
	guardian := open(&later{open: func() channels.Driver { opened++; return there }})
	if left, err := guardian.RestoreAll(t.Context()); left != 1 || !errors.Is(err, rm.ErrUnsupported) {
		t.Errorf("%d left: %v", left, err)
	}
	there, opened = m, 0
	if left, err := guardian.RestoreAll(t.Context()); left != 0 || err != nil || m.Off(p) != 0 || opened != 1 {
		t.Errorf("%d left, %d channels are off, opened %d times: %v", left, m.Off(p), opened, err)
	}
}
