package rm_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/laxity/laxity/internal/rm"
	"github.com/laxity/laxity/internal/rm/rmtest"
)

func openTrace(t *testing.T, fake *rmtest.RM, uuid string) *rm.Trace {
	t.Helper()
	trace, err := rm.New(fake, rm.Options{}).OpenTrace(uuid)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(trace.Close)
	return trace
}

// traced returns what a trace tells of what happens in do.
func traced(t *testing.T, trace *rm.Trace, do func()) (all []rm.Switch, lost bool) {
	t.Helper()
	if err := trace.Start(); err != nil {
		t.Fatal(err)
	}
	do()
	all, lost, err := trace.Stop()
	if err != nil {
		t.Fatal(err)
	}
	return all, lost
}

func TestTraceTellsWhoWasOnItsGPU(t *testing.T) {
	for _, driver := range []string{"535.288.01", "550.163.01", "580.105.08", "595.45.04"} {
		t.Run(driver, func(t *testing.T) {
			fake := rmtest.New("GPU-0", "GPU-1")
			fake.SetDriver(driver)
			trace := openTrace(t, fake, "GPU-1")
			fake.Switched(1, 1, 40, true) // before the start
			all, lost := traced(t, trace, func() {
				fake.Switched(0, 5, 99, true) // another GPU's
				fake.Switched(1, 10, 41, true)
				fake.Switched(1, 20, 41, false)
				fake.Switched(1, 25, 0xffffffff, true) // a context of the driver's own
			})
			if want := []rm.Switch{{At: 10, PID: 41, On: true}, {At: 20, PID: 41}, {At: 25}}; !slices.Equal(all, want) || lost {
				t.Errorf("%v, lost %v, want %v", all, lost, want)
			}
			fake.Switched(1, 30, 42, true) // between two
			if all, lost := traced(t, trace, func() {}); len(all) > 0 || lost {
				t.Errorf("while nothing happened: %v, lost %v", all, lost)
			}
		})
	}
}

func TestTraceSaysThatSwitchesAreMissing(t *testing.T) {
	fake := rmtest.New("GPU-0")
	trace := openTrace(t, fake, "GPU-0")
	if all, lost := traced(t, trace, func() {
		fake.Switched(0, 10, 41, true)
		fake.LoseSwitches(0, 3)
		fake.Switched(0, 20, 42, true)
	}); len(all) != 2 || !lost {
		t.Errorf("the driver dropped 3: %v, lost %v", all, lost)
	}
	for range 2 { // more than the buffer holds: the first ones are gone
		if all, _ := traced(t, trace, func() {
			for i := range uint64(1<<14 + 100) {
				fake.Switched(0, 30+i, 43, i%2 == 0)
			}
		}); len(all) != 100 {
			t.Errorf("%d switches, want what is left of a full round", len(all))
		}
	}
}

// A trace is on from Start to Stop, and whatever the driver refuses, nothing of ours stays behind.
func TestTraceLeavesNothing(t *testing.T) {
	for _, cmd := range []uint32{rmtest.CmdUUIDInfo, rmtest.CmdTraceSwitches, rmtest.CmdEnableEvents, 0x90ce, 0x90cd, 0x80, 0x2080, 0} {
		fake := rmtest.New("GPU-0")
		fake.Hook(func(c *rmtest.Call) {
			if c.Cmd == cmd {
				c.Status = rmtest.StatusInsufficientPermissions
			}
		})
		trace, err := rm.New(fake, rm.Options{}).OpenTrace("GPU-0")
		if err == nil {
			if err = trace.Start(); err == nil && trace.Start() == nil {
				t.Error("it is on twice")
			}
			if on := fake.Traces(); on != map[bool]int{true: 1}[err == nil] {
				t.Errorf("refused %#x: %d traces are on", cmd, on)
			}
			if _, _, stopped := trace.Stop(); (stopped == nil) != (err == nil) || fake.Traces() > 0 {
				t.Errorf("refused %#x: stopped %v, %d traces are on", cmd, stopped, fake.Traces())
			}
			trace.Close()
			trace.Close()
			if trace.Start() == nil {
				t.Error("a closed trace was started")
			}
		}
		if refused := cmd != 0; refused != (err != nil) {
			t.Fatalf("refused %#x: %v", cmd, err)
		}
		if fake.Held() > 0 || fake.Clients() > 0 {
			t.Errorf("refused %#x: %d descriptors and %d clients stay", cmd, fake.Held(), fake.Clients())
		}
	}
}

func TestTraceIsForKnownDriversOnly(t *testing.T) {
	fake := rmtest.New("GPU-0")
	fake.SetDriver("610.1")
	if _, err := rm.New(fake, rm.Options{}).OpenTrace("GPU-0"); !errors.Is(err, rm.ErrUnsupported) {
		t.Errorf("%v, want ErrUnsupported", err)
	}
	if fake.Calls("ioctl") > 0 {
		t.Error("an unknown driver was called")
	}
}
