//go:build linux && cgo

package nvml

import (
	"errors"
	"math"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/laxity/laxity/exporter/device"
	"github.com/laxity/laxity/exporter/device/devicetest"
	"github.com/laxity/laxity/exporter/device/sim"
	"github.com/laxity/laxity/internal/needtest"
	"github.com/laxity/laxity/internal/workload"
)

func TestConformanceOnASimulatedDriver(t *testing.T) {
	for name, opts := range devicetest.Shapes() {
		opts.ContextTime = -1
		t.Run(name, func(t *testing.T) {
			devicetest.Run(t, func(t *testing.T) devicetest.Rig {
				gpu, err := sim.New(opts)
				if err != nil {
					t.Fatal(err)
				}
				lib := newFake(gpu)
				lib.mpsTwice = name == "two cards" // drivers differ
				d, err := open(lib, time.Now)
				if err != nil {
					t.Fatal(err)
				}
				return devicetest.SimRig(gpu, d)
			})
		})
	}
}

func TestConformanceOnARealDriver(t *testing.T) {
	devicetest.Run(t, func(t *testing.T) devicetest.Rig {
		d, err := Open()
		if errors.Is(err, device.ErrUnavailable) {
			needtest.GPU.Skip(t, err)
		}
		if err != nil {
			t.Fatal(err)
		}
		return devicetest.Rig{Device: d, Occupy: occupy}
	})
}

// occupy runs a CUDA program on these GPUs.
func occupy(t *testing.T, bytes uint64, uuids ...string) (pid int, release func()) {
	t.Helper()
	program, err := workload.Build("")
	if err != nil {
		needtest.Compiler.Skip(t, "the CUDA program cannot be built:", err)
	}
	mib := strconv.FormatUint(bytes>>20, 10)
	args := []string{"--context-only", "--alloc-extra", mib, "--hold", "3600"}
	if len(uuids) > 1 {
		args = append(args, "--more", mib, "--more-device", "1")
	}
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Env = append(os.Environ(), "CUDA_VISIBLE_DEVICES="+strings.Join(uuids, ","))
	cmd.Stderr = t.Output()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd.Process.Pid, func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // killed
	}
}

func TestOpenSaysWhatToDo(t *testing.T) {
	for _, tt := range []struct {
		ret         nvml.Return
		unavailable bool
		hint        string
	}{
		{nvml.ERROR_LIBRARY_NOT_FOUND, true, "--gpus all"},
		{nvml.ERROR_DRIVER_NOT_LOADED, true, "modprobe nvidia"},
		{nvml.ERROR_NO_PERMISSION, false, "/dev/nvidiactl"},
		{nvml.ERROR_LIB_RM_VERSION_MISMATCH, false, "restart this program"},
		{nvml.ERROR_UNKNOWN, false, "daemon-reload"},
	} {
		_, err := open(failingInit{ret: tt.ret}, time.Now)
		if err == nil || errors.Is(err, device.ErrUnavailable) != tt.unavailable || !strings.Contains(err.Error(), tt.hint) {
			t.Errorf("%d: %v, want unavailable = %v and %q in it", tt.ret, err, tt.unavailable, tt.hint)
		}
	}
}

// failingInit panics at any call but Init.
type failingInit struct {
	nvml.Interface
	ret nvml.Return
}

func (f failingInit) Init() nvml.Return { return f.ret }

func TestOldDriver(t *testing.T) {
	gpu, _ := newSim(t)
	lib := newFake(gpu)
	lib.missing = "nvmlDeviceGetMemoryInfo_v2"
	if _, err := open(lib, time.Now); !errors.Is(err, device.ErrUnavailable) || !strings.Contains(err.Error(), "too old") {
		t.Errorf("got %v", err)
	}
	if lib.ready {
		t.Error("the driver was not let go")
	}
}

func TestReloadInitialisesAfresh(t *testing.T) {
	gpu, _ := newSim(t)
	lib := newFake(gpu)
	d, err := open(lib, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	gpu.UnloadDriver()
	if _, err := d.Read(t.Context()); err == nil {
		t.Fatal("read without a driver")
	}
	if lib.ready {
		t.Error("the driver was not let go: it could not be unloaded")
	}
	if _, err := d.Read(t.Context()); !errors.Is(err, device.ErrUnavailable) {
		t.Errorf("second read: %v", err)
	}
	gpu.LoadDriver("")
	if _, err := d.Read(t.Context()); err != nil || lib.inits != 3 {
		t.Errorf("after the reload: %v, initialised %d times, want 3", err, lib.inits)
	}
	if err := d.Close(); err != nil || lib.ready {
		t.Errorf("Close: %v, driver still held: %v", err, lib.ready)
	}
}

// A GPU that had fallen off the bus before the first reading is told, under a name that
// says where it is; one that is somebody else's is not.
func TestGPUThatNeverAnswered(t *testing.T) {
	opts := sim.Options{Cards: make([]sim.Card, 2)}
	gpu, err := sim.New(opts)
	if err != nil {
		t.Fatal(err)
	}
	lib := newFake(gpu)
	first, err := gpu.Device().Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	lost := first.GPUs[1].UUID
	if err := gpu.Lose(lost); err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	d, err := open(lib, func() time.Time { return now })
	if err != nil {
		t.Fatal(err)
	}
	r, err := d.Read(t.Context())
	if err != nil || len(r.GPUs) != 2 {
		t.Fatalf("%+v, %v; want both GPUs", r, err)
	}
	if g := r.GPUs[1]; g.UUID != "unknown-1" || g.Index != 1 || g.MemoryTotal != 0 || g.ProcessesErr == nil {
		t.Errorf("of a GPU that never answered: %+v", g)
	}
	if err := gpu.Recover(lost); err != nil {
		t.Fatal(err)
	}
	now = now.Add(identitiesEvery)
	if r, err := d.Read(t.Context()); err != nil || len(r.GPUs) != 2 || r.GPUs[1].UUID != lost || r.GPUs[1].ProcessesErr != nil {
		t.Errorf("after its return: %+v, %v", r, err)
	}
}

func TestSMUtilization(t *testing.T) {
	gpu, pid := newSim(t)
	lib := newFake(gpu)
	now := time.Now()
	var asked []uint64
	var buffer []nvml.ProcessUtilizationSample
	lib.samples = func(lastSeen uint64) ([]nvml.ProcessUtilizationSample, nvml.Return) {
		asked = append(asked, lastSeen)
		if list := newer(buffer, lastSeen); len(list) > 0 {
			return list, nvml.SUCCESS
		}
		return nil, nvml.ERROR_NOT_FOUND
	}
	d, err := open(lib, func() time.Time { return now })
	if err != nil {
		t.Fatal(err)
	}
	share := func() float64 {
		t.Helper()
		r, err := d.Read(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return r.GPUs[0].Processes[0].SMUtilization
	}

	buffer = append(buffer, sample(pid, now.Add(-time.Hour), 90)) // of a process long gone that had this PID
	buffer = append(buffer, sample(pid, now.Add(-400*time.Millisecond), 40), sample(pid, now.Add(-200*time.Millisecond), 60))
	if got := share(); math.Abs(got-0.5) > 1e-9 {
		t.Errorf("first: %v, want the mean of the new samples, 0.5", got)
	}
	if want := uint64(now.Add(-smInterval).UnixMicro()); asked[0] != want {
		t.Errorf("first asked since %d µs, want %d", asked[0], want)
	}

	buffer = append(buffer, sample(pid, now.Add(100*time.Millisecond), 100))
	now = now.Add(900 * time.Millisecond)
	if got := share(); math.Abs(got-0.5) > 1e-9 || len(asked) != 1 {
		t.Errorf("within a second: %v after %d calls, want 0.5 still after one", got, len(asked))
	}
	now = now.Add(100 * time.Millisecond)
	if got := share(); got != 1 || asked[1] != buffer[2].TimeStamp {
		t.Errorf("a second later: %v asked since %v, want 1 since %d", got, asked[1:], buffer[2].TimeStamp)
	}
	now = now.Add(time.Second)
	if got := share(); got != 0 {
		t.Errorf("no sample: %v, want 0", got)
	}
	// The clock is set back; samples of before are of a time to come.
	for range 2 {
		now = now.Round(0).Add(-time.Hour)
		buffer = append(buffer, sample(pid, now.Add(-100*time.Millisecond), 70))
		if got := share(); math.Abs(got-0.7) > 1e-9 {
			t.Errorf("after the clock was set back: %v, want 0.7", got)
		}
	}
	now = now.Add(time.Second)
	lib.samples = func(uint64) ([]nvml.ProcessUtilizationSample, nvml.Return) { return nil, nvml.ERROR_NOT_SUPPORTED }
	if got := share(); !math.IsNaN(got) {
		t.Errorf("not supported: %v, want NaN", got)
	}
}

// A client of MPS may be in both of the driver's lists; an old NVML has one list; a list that fails is no empty one.
func TestClientsOfMPS(t *testing.T) {
	for _, tc := range []struct {
		name    string
		prepare func(*fakeLibrary)
		clients int // processes that are clients of MPS, of two processes
		listed  int
		tells   bool
		fails   bool
	}{
		{"in one list", func(*fakeLibrary) {}, 1, 2, true, false},
		{"in both lists", func(lib *fakeLibrary) { lib.mpsTwice = true }, 1, 2, true, false},
		{"an old NVML", func(lib *fakeLibrary) { lib.missing = mpsClients[0] }, 0, 1, false, false},
		{"not supported", func(lib *fakeLibrary) { lib.fail = map[string]nvml.Return{"mps": nvml.ERROR_NOT_SUPPORTED} }, 0, 1, false, false},
		{"a list that fails", func(lib *fakeLibrary) { lib.fail = map[string]nvml.Return{"mps": nvml.ERROR_UNKNOWN} }, 0, 0, false, true},
	} {
		gpu, _ := newSim(t)
		client := gpu.Attach(4712)
		client.UseMPS()
		if err := client.Open(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
		if _, err := client.Alloc(0, 64<<20); err != nil {
			t.Fatal(err)
		}
		lib := newFake(gpu)
		tc.prepare(lib)
		d, err := open(lib, time.Now)
		if err != nil {
			t.Fatal(err)
		}
		r, err := d.Read(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		clients := 0
		for _, p := range r.GPUs[0].Processes {
			if p.MPS {
				clients++
			}
		}
		if clients != tc.clients || len(r.GPUs[0].Processes) != tc.listed || (r.GPUs[0].ProcessesErr != nil) != tc.fails || r.GPUs[0].TellsMPS != tc.tells {
			t.Errorf("%s: %+v, tells clients %v, %v", tc.name, r.GPUs[0].Processes, r.GPUs[0].TellsMPS, r.GPUs[0].ProcessesErr)
		}
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}
}
