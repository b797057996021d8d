package cuda_test

import (
	"debug/elf"
	"errors"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/laxity/laxity/exporter/device/sim"
	"github.com/laxity/laxity/exporter/device/sim/cuda"
	"github.com/laxity/laxity/exporter/device/sim/simtest"
	"github.com/laxity/laxity/internal/cc"
	"github.com/laxity/laxity/internal/needtest"
)

func TestSymbols(t *testing.T) {
	lib, err := elf.Open(filepath.Join(simtest.Library(t), "libcuda.so.1"))
	if err != nil {
		t.Fatal(err)
	}
	defer lib.Close()
	symbols, err := lib.DynamicSymbols()
	if err != nil {
		t.Fatal(err)
	}
	at := map[string]uint64{}
	for _, s := range symbols {
		if s.Section == elf.SHN_UNDEF || s.Name == "cuDeviceGetUuid" { // an alias
			continue
		}
		if !strings.HasPrefix(s.Name, "cu") || elf.ST_TYPE(s.Info) != elf.STT_FUNC || s.Size == 0 {
			t.Errorf("exports %s, which is no function of the driver API", s.Name)
		}
		for name, value := range at {
			if value == s.Value {
				t.Errorf("%s and %s are one: a probe on one fires for both", name, s.Name)
			}
		}
		at[s.Name] = s.Value
	}
	for _, name := range []string{
		"cuInit", "cuCtxCreate_v2", "cuCtxCreate_v4", "cuDevicePrimaryCtxRetain", "cuLaunchKernel", "cuLaunchKernelEx",
		"cuGraphLaunch", "cuCtxSynchronize", "cuCtxSynchronize_v2", "cuStreamSynchronize", "cuEventSynchronize",
		"cuMemcpyDtoH_v2", "cuMemcpyDtoHAsync_v2", "cuMemAlloc_v2", "cuMemCreate", "cuMemAllocAsync",
		"cuMemAllocFromPoolAsync", "cuMemAllocManaged",
	} {
		if at[name] == 0 {
			t.Errorf("%s is missing: sensor or guard probes it", name)
		}
	}
}

func TestWorkload(t *testing.T) {
	gpu := func() *simtest.Server {
		return simtest.Start(t, sim.Options{ContextTime: -1, ListDelay: -1, Cards: []sim.Card{
			{Name: "Simulated A", Memory: 2 << 30, Speed: sim.H200().Faster(100)},
			{Name: "Simulated B", Memory: 2 << 30, Speed: sim.H200().Faster(100)},
		}})
	}
	tests := []struct {
		name string
		env  map[string]string
		args []string
		code int
		last string // in the last line of the time line
	}{
		{"verify does not check what is not computed", nil, []string{"--verify"}, 0, `"exit"`},
		{"primary context", nil, []string{"--primary", "--destroy"}, 0, `"exit"`},
		{"loop", nil, []string{"--repeat", "3", "--gap", "0.01", "--sync-each", "--kernels", "5"}, 0, `"exit"`},
		{"no kernels", nil, []string{"--kernels", "0"}, 0, `"exit"`},
		{"init only", nil, []string{"--init-only"}, 0, `"exit"`},
		{"second GPU", nil, []string{"--device", "1", "--context-only"}, 0, `"exit"`},
		{"no third GPU", nil, []string{"--device", "2"}, 1, "CUDA_ERROR_INVALID_DEVICE"},
		{"out of memory", nil, []string{"--alloc-extra", "4096"}, 1, "CUDA_ERROR_OUT_OF_MEMORY"},
		{"one GPU visible", map[string]string{"CUDA_VISIBLE_DEVICES": "1"}, []string{"--device", "1"}, 1, "CUDA_ERROR_INVALID_DEVICE"},
		{"UUID visible", map[string]string{"NVIDIA_VISIBLE_DEVICES": "GPU-00000000-0000-0000-0000-000000000001"}, nil, 0, `"exit"`},
		{"none visible", map[string]string{"CUDA_VISIBLE_DEVICES": ""}, nil, 1, "CUDA_ERROR_NO_DEVICE"},
		{"usage", nil, []string{"--kernels", "many"}, 2, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for key, value := range tt.env {
				t.Setenv(key, value)
			}
			p := gpu().StartProcess(t, append([]string{"--n", "64"}, tt.args...)...)
			lines := p.Timeline(t)
			code := 0
			var exit *exec.ExitError
			if errors.As(p.Wait(t), &exit) {
				code = exit.ExitCode()
			}
			if code != tt.code {
				t.Errorf("exit code %d, want %d", code, tt.code)
			}
			if tt.last != "" && (len(lines) == 0 || !strings.Contains(lines[len(lines)-1].Text, tt.last)) {
				t.Errorf("time line %v, want its last line to hold %s", lines, tt.last)
			}
		})
	}
}

// Each run is a process of its own, and the one that starts them obeys SIGTERM,
// its run with it.
func TestRuns(t *testing.T) {
	s := simtest.Start(t, sim.Options{ContextTime: -1, ListDelay: -1, Cards: []sim.Card{{Speed: sim.H200().Faster(100)}}})
	p := s.StartProcess(t, "--n", "64", "--runs", "3")
	if err := p.Wait(t); err != nil {
		t.Error(err)
	}
	ran := map[int]bool{p.PID: true}
	for _, e := range p.Timeline(t) {
		ran[e.PID] = true
	}
	if len(ran) != 4 {
		t.Errorf("%d processes, want 3 and the one that starts them", len(ran))
	}

	p = s.StartProcess(t, "--n", "64", "--runs", "0", "--hold", "3600")
	p.Await(t, "kernels_end")
	if err := p.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	var exit *exec.ExitError
	if err := p.Wait(t); !errors.As(err, &exit) || exit.ExitCode() != 128+int(syscall.SIGTERM) {
		t.Errorf("SIGTERM: %v", err)
	}
	p.Timeline(t) // its end: nobody has the pipe open any more

	p = s.StartProcess(t, "--n", "64", "--runs", "0", "--device", "1")
	if err := p.Wait(t); !errors.As(err, &exit) || exit.ExitCode() != 1 {
		t.Errorf("a run that fails: %v", err)
	}
}

func TestNoServer(t *testing.T) {
	s := simtest.Start(t, sim.Options{})
	s.Stop()
	p := s.StartProcess(t, "--n", "64")
	p.Wait(t)
	lines := p.Timeline(t)
	if last := lines[len(lines)-1].Text; !strings.Contains(last, "CUDA_ERROR_NO_DEVICE") {
		t.Errorf("got %s", last)
	}
}

// api is a program that uses the library in ways that the workload does not.
const api = `
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
typedef int (*any)();
static void *lib;
static any f(const char *name) { any p = (any)dlsym(lib, name); if (!p) { fprintf(stderr, "no %s\n", name); exit(9); } return p; }
#define OK(call) do { int r = (call); if (r) { fprintf(stderr, "line %d: %d\n", __LINE__, r); exit(1); } } while (0)
static void *context;
static void *worker(void *stream) {
	void *event, *function = "kernel";
	OK(f("cuCtxSetCurrent")(context));
	OK(f("cuEventCreate")(&event, 0));
	for (int i = 0; i < 20; i++) {
		OK(f("cuLaunchKernel")(function, 64, 1, 1, 64, 1, 1, 0, stream, (void *)0, (void *)0));
		OK(f("cuEventRecord")(event, stream));
		OK(f("cuEventSynchronize")(event));
		OK(f("cuEventQuery")(event));
		OK(f("cuStreamSynchronize")(stream));
	}
	return 0;
}
int main(void) {
	pthread_t threads[8];
	lib = dlopen("libcuda.so.1", RTLD_NOW);
	if (!lib) return 8;
	int count = 0;
	if (f("cuDeviceGetCount")(&count) != 3) return 7; // not initialised
	OK(f("cuInit")(0));
	OK(f("cuCtxCreate_v4")(&context, (void *)0, 0, 0));
	for (int i = 0; i < 8; i++) {
		void *stream;
		OK(f("cuStreamCreate")(&stream, 0));
		OK(pthread_create(&threads[i], 0, worker, stream));
	}
	for (int i = 0; i < 8; i++) pthread_join(threads[i], 0);
	uint64_t a, b;
	size_t left, total;
	OK(f("cuMemAllocAsync")(&a, (size_t)1 << 20, (void *)0));
	OK(f("cuMemCreate")(&b, (size_t)1 << 20, (void *)0, 0ull));
	OK(f("cuMemGetInfo_v2")(&left, &total));
	if (total - left != (size_t)568 << 20) return 6;
	OK(f("cuMemFreeAsync")(a, (void *)0));
	pid_t child = fork();
	if (!child) { // as if never initialised, then a process of its own
		if (f("cuMemFree_v2")(b) != 3) _exit(5);
		OK(f("cuInit")(0));
		OK(f("cuCtxCreate_v2")(&context, 0, 0));
		OK(f("cuMemGetInfo_v2")(&left, &total));
		_exit(total - left == (size_t)(567 + 566) << 20 ? 0 : 4);
	}
	int status;
	waitpid(child, &status, 0);
	if (status) return 3;
	OK(f("cuMemRelease")(b)); // the parent is as it was
	any found;
	OK(f("cuGetProcAddress_v2")("cuMemAlloc", &found, 13000, (uint64_t)0, (int *)0));
	return found == f("cuMemAlloc_v2") ? 0 : 2;
}
`

func TestThreadsStreamsAndFork(t *testing.T) {
	program, err := cc.Build(t.Context(), t.TempDir(), cc.Target{
		Name: "api", Source: []byte(api), Flags: []string{"-w", "-pthread", "-ldl"},
	})
	if err != nil {
		needtest.Compiler.Skip(t, err)
	}
	s := simtest.Start(t, sim.Options{ContextTime: -1, ListDelay: -1, Cards: []sim.Card{{Speed: sim.H200().Faster(100)}}})
	if err := s.StartCommand(t, exec.Command(program)).Wait(t); err != nil {
		t.Error(err)
	}
}

func TestBuildIsKept(t *testing.T) {
	dir := t.TempDir()
	first, err := cuda.Build(dir)
	if err != nil {
		needtest.Compiler.Skip(t, err)
	}
	second, err := cuda.Build(dir)
	if err != nil || first != second {
		t.Errorf("%s, then %s: %v", first, second, err)
	}
	if !slices.Contains(strings.Split(first, string(filepath.Separator)), filepath.Base(dir)) {
		t.Errorf("%s is not below %s", first, dir)
	}
}
