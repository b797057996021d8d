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

func readTrace(t *testing.T, trace *rm.Trace) (all []rm.Switch, lost bool) {
	t.Helper()
	all, lost, err := trace.Read()
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
			if all, lost := readTrace(t, trace); len(all) > 0 || lost {
				t.Errorf("before anything happened: %v, lost %v", all, lost)
			}
			fake.Switched(0, 5, 99, true) // another GPU's
			fake.Switched(1, 10, 41, true)
			fake.Switched(1, 20, 41, false)
			fake.Switched(1, 25, 0xffffffff, true) // a context of the kernel
			want := []rm.Switch{{At: 10, PID: 41, On: true}, {At: 20, PID: 41}, {At: 25}}
			if all, lost := readTrace(t, trace); !slices.Equal(all, want) || lost {
				t.Errorf("%v, lost %v, want %v", all, lost, want)
			}
			if all, _ := readTrace(t, trace); len(all) > 0 {
				t.Errorf("read twice: %v", all)
			}
		})
	}
}

func TestTraceSaysThatSwitchesAreMissing(t *testing.T) {
	fake := rmtest.New("GPU-0")
	trace := openTrace(t, fake, "GPU-0")
	fake.Switched(0, 10, 41, true)
	readTrace(t, trace)
	fake.LoseSwitches(0, 3)
	fake.Switched(0, 20, 42, true)
	if all, lost := readTrace(t, trace); len(all) != 1 || !lost {
		t.Errorf("the driver dropped 3: %v, lost %v", all, lost)
	}
	const more = 1<<14 + 100 // than the buffer holds
	for i := range uint64(more) {
		fake.Switched(0, 30+i, 43, i%2 == 0)
	}
	if _, lost := readTrace(t, trace); !lost {
		t.Error("the buffer was overwritten, and nobody said so")
	}
	fake.Switched(0, 1<<20, 44, true)
	if all, lost := readTrace(t, trace); len(all) != 1 || lost {
		t.Errorf("after that: %v, lost %v", all, lost)
	}
}

// Whatever the driver refuses, nothing of ours stays behind.
func TestTraceLeavesNothing(t *testing.T) {
	for _, cmd := range []uint32{rmtest.CmdUUIDInfo, rmtest.CmdTraceSwitches, rmtest.CmdEnableEvents, 0x90ce, 0x90cd, 0x80, 0x2080, 0} {
		fake := rmtest.New("GPU-0")
		fake.Hook(func(c *rmtest.Call) {
			if c.Cmd == cmd {
				c.Status = rmtest.StatusInsufficientPermissions
			}
		})
		trace, err := rm.New(fake, rm.Options{}).OpenTrace("GPU-0")
		if refused := cmd != 0; refused != (err != nil) {
			t.Fatalf("refused %#x: %v", cmd, err)
		}
		if err == nil {
			if fake.Traces() != 1 {
				t.Errorf("%d traces are open", fake.Traces())
			}
			trace.Close()
			trace.Close()
			if _, _, err := trace.Read(); err == nil {
				t.Error("a closed trace was read")
			}
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
