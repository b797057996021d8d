//go:build linux && cgo

package nvml

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/laxity/laxity/exporter/device"
)

// identitiesEvery is how often GPUs and MIG instances are listed anew.
const (
	identitiesEvery = 10 * time.Second
	relistAfter     = time.Second // after a GPU did not answer
)

// needed are the newest NVML functions that this package calls. A call of a function that the
// library lacks would end the process.
var needed = []string{"nvmlDeviceGetMemoryInfo_v2", "nvmlDeviceGetMigDeviceHandleByIndex", "nvmlDeviceGetProcessUtilization"}

// mpsClients are the versions of the function that lists the clients of MPS; go-nvml calls the newest
// that is there.
var mpsClients = []string{"nvmlDeviceGetMPSComputeRunningProcesses", "nvmlDeviceGetMPSComputeRunningProcesses_v2", "nvmlDeviceGetMPSComputeRunningProcesses_v3"}

// reader is the device.Device of this package.
type reader struct {
	lib    nvml.Interface
	now    func() time.Time
	ready  bool // Init succeeded and Shutdown was not called: NVML may be called
	closed bool

	driver string
	mps    bool // NVML lists the clients of MPS
	units  []*unit
	listed time.Time            // when units were listed
	known  map[int][]device.GPU // identities by card, as listed last; they outlive stop
}

// Open loads and initialises NVML. Without a driver the error wraps
// device.ErrUnavailable and says what to do.
func Open() (device.Device, error) { return open(nvml.New(), time.Now) }

func open(lib nvml.Interface, now func() time.Time) (device.Device, error) {
	r := &reader{lib: lib, now: now}
	if err := r.start(); err != nil {
		return nil, err
	}
	return r, nil
}

// Read implements device.Device. ctx does not interrupt a driver call.
func (r *reader) Read(context.Context) (device.Reading, error) {
	if r.closed {
		return device.Reading{}, errors.New("NVML: read after Close")
	}
	if !r.ready {
		if err := r.start(); err != nil {
			return device.Reading{}, err
		}
	}
	reading, err := r.read()
	if err != nil {
		r.stop()
		return device.Reading{}, err
	}
	return reading, nil
}

// Close implements device.Device.
func (r *reader) Close() error {
	r.closed = true
	r.stop()
	return nil
}

func (r *reader) start() error {
	if ret := r.lib.Init(); ret != nvml.SUCCESS {
		return failed("initialise", ret)
	}
	r.ready = true
	for _, name := range needed {
		if err := r.lib.Extensions().LookupSymbol(name); err != nil {
			r.stop()
			return fmt.Errorf("%w: the NVIDIA driver is too old: its NVML has no %s; install 510 or later",
				device.ErrUnavailable, name)
		}
	}
	r.mps = slices.ContainsFunc(mpsClients, func(name string) bool { return r.lib.Extensions().LookupSymbol(name) == nil })
	version, ret := r.lib.SystemGetDriverVersion()
	if ret != nvml.SUCCESS {
		r.stop()
		return failed("read the driver's version", ret)
	}
	r.driver = version
	return nil
}

// stop releases the driver, so that it can be unloaded. It ignores the answer of Shutdown,
// because a driver that is gone cannot be shut down.
func (r *reader) stop() {
	if r.ready {
		r.ready = false
		_ = r.lib.Shutdown()
	}
	r.units = nil
}

func (r *reader) read() (device.Reading, error) {
	now := r.now()
	if r.units == nil || now.Sub(r.listed) >= identitiesEvery {
		if err := r.list(now); err != nil {
			return device.Reading{}, err
		}
	}
	reading := device.Reading{Time: now}
	var errs []error
	answered := false
	for _, u := range r.units {
		gpu, ret := u.read(now)
		if ret == nvml.SUCCESS {
			answered = true
		} else {
			if gone(ret) {
				return device.Reading{}, failed("read a GPU", ret)
			}
			errs = append(errs, fmt.Errorf("GPU %s: %w", gpu.UUID, ret))
			r.listed = now.Add(relistAfter - identitiesEvery) // its handle may be stale
		}
		reading.GPUs = append(reading.GPUs, gpu)
	}
	if len(errs) > 0 && !answered {
		return device.Reading{}, fmt.Errorf("NVML: no GPU answers: %w", errors.Join(errs...))
	}
	return reading, nil
}

// gone reports whether NVML as a whole has failed, not one GPU.
func gone(ret nvml.Return) bool {
	switch ret {
	case nvml.ERROR_UNINITIALIZED, nvml.ERROR_DRIVER_NOT_LOADED, nvml.ERROR_LIB_RM_VERSION_MISMATCH,
		nvml.ERROR_LIBRARY_NOT_FOUND:
		return true
	}
	return false
}

// failed wraps device.ErrUnavailable where there is no driver, and says what to do.
func failed(what string, ret nvml.Return) error {
	switch ret {
	case nvml.ERROR_LIBRARY_NOT_FOUND:
		return fmt.Errorf("%w: libnvidia-ml.so.1 not found: install the NVIDIA driver; in a container, "+
			"start it with --gpus all and NVIDIA_DRIVER_CAPABILITIES=utility", device.ErrUnavailable)
	case nvml.ERROR_DRIVER_NOT_LOADED:
		return fmt.Errorf("%w: the NVIDIA driver is not loaded: try modprobe nvidia, then nvidia-smi", device.ErrUnavailable)
	case nvml.ERROR_NO_PERMISSION:
		return fmt.Errorf("NVML: cannot %s: no permission: is /dev/nvidiactl readable here?", what)
	case nvml.ERROR_LIB_RM_VERSION_MISMATCH:
		return fmt.Errorf("NVML: cannot %s: the driver was replaced by another version; restart this program "+
			"to load its library", what)
	case nvml.ERROR_UNKNOWN:
		return fmt.Errorf("NVML: cannot %s: unknown error; in a container the device nodes may have been taken away "+
			"(systemctl daemon-reload does that): start it again", what)
	}
	return fmt.Errorf("NVML: cannot %s: %w", what, ret)
}
