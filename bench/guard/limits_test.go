package guard

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/laxity/laxity/actuator/enforce/memory"
	"github.com/laxity/laxity/bench"
	"github.com/laxity/laxity/internal/cudaprobe"
	"github.com/laxity/laxity/internal/cudaprobe/cudatest"
	"github.com/laxity/laxity/internal/needtest"
)

// What the driver's own calls get on the stand-in, whose contexts take 64 MiB.
func TestLimitsOnTheStandIn(t *testing.T) {
	if err := memory.Check(); errors.Is(err, cudaprobe.ErrUnsupported) {
		needtest.BPF.Skip(t, err)
	}
	_, _ = syscall.Setsid() // the guard lets alone what runs under a shell with job control
	stand := cudatest.Build(t)
	t.Setenv("LAXITY_LEDGER", stand.Dir)
	program := filepath.Join(t.TempDir(), "steps")
	if err := build(t.Context(), program, stepsC); err != nil {
		t.Fatal(err)
	}
	var id atomic.Value
	id.Store("")
	b := &bed{device: standIn{stand}, gpu: "GPU-1", of: func(pid int) (string, bool, error) { return family(id.Load().(string), pid) }}
	stop, err := b.open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := stop(); err != nil {
			t.Error(err)
		}
	}()
	var rows []bench.Row
	for _, s := range subjects {
		if s.how == "" || s.how == "captured" {
			continue // the stand-in captures nothing, and there is no PyTorch for it
		}
		for _, way := range []string{without, guarded} {
			row := newRow(s, way)
			gate := t.TempDir()
			p := startHere(t, program, stand.Library, gate, s)
			id.Store(p.id)
			ended := make(chan struct{})
			var opens sync.WaitGroup
			opens.Go(func() {
				for {
					letThrough(gate, func(pid int) bool { return way == without || slices.Contains(b.guard.Report()[p.id].PIDs, pid) })
					select {
					case <-ended:
						return
					case <-time.After(10 * time.Millisecond):
					}
				}
			})
			err := b.follow(t.Context(), s, p, row)
			close(ended)
			opens.Wait()
			if err != nil {
				t.Fatal(s.name, way, err)
			}
			rows = append(rows, row)
			// The first context of a process counts as 512 MiB while it is made.
			over := max(row.Num("granted"), row.Num("held")) > float64(s.limit())
			if on := row.Num("on"); on != float64(s.processes) || row.Num("freed") != on || over == (way == guarded) || (row.Num("refused") > 0) != (way == guarded) {
				t.Errorf("%v", row)
			}
		}
	}
	for _, line := range limitTable(rows) {
		t.Log(line)
	}
	if f := limitFigures(rows); f[0].Value != 6 || f[1].Value != 6 || !(f[2].Value <= 0) {
		t.Errorf("%+v", f)
	}
}

// family says that the processes of a session are a container.
func family(id string, pid int) (string, bool, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", false, err
	}
	_, after, _ := strings.Cut(string(stat), ") ")
	fields := strings.Fields(after)
	return id, len(fields) > 3 && fields[3] == id, nil
}

// letThrough lets those of the processes that wait in the folder go on that may.
func letThrough(gate string, may func(pid int) bool) {
	waiting, _ := os.ReadDir(gate)
	for _, file := range waiting {
		if pid, err := strconv.Atoi(file.Name()); err == nil && may(pid) {
			_ = os.Remove(filepath.Join(gate, file.Name()))
		}
	}
}

// startHere starts a program whose processes wait in the folder gate before their contexts.
func startHere(t *testing.T, program, library, gate string, s subject) running {
	t.Helper()
	args := []string{"-c", `"$@"; exit $?`, "sh", program, library, s.how}
	args = append(args, strconv.Itoa(step), strconv.Itoa(most), strconv.Itoa(s.processes))
	cmd := exec.CommandContext(t.Context(), "/bin/sh", args...)
	// The shell stays: we are the tracer of whom is denied, and must not be its parent.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	// The stand-in is found where a process of the container has it already.
	cmd.Env = append(os.Environ(), "LD_PRELOAD="+library, "STEPS_GATE="+gate)
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		maps, _ := os.ReadFile(fmt.Sprintf("/proc/%d/maps", cmd.Process.Pid))
		if strings.Contains(string(maps), library) {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the shell has not loaded the stand-in")
		}
	}
	return running{
		id: strconv.Itoa(cmd.Process.Pid), pid: cmd.Process.Pid,
		wait:   func(context.Context) error { return cmd.Wait() },
		output: func(context.Context) (string, error) { return out.String(), nil },
	}
}

func TestStepTimes(t *testing.T) {
	at := func(seconds int64) time.Time { return time.Unix(1000+seconds, 0) }
	phases := []phase{{without, at(0), at(10)}, {guarded, at(12), at(20)}, {without, at(22), at(30)}}
	rows, err := stepTimes("ready\n1001.0 0.5\n1002.0 0.7\n1009.9 0.2\n1011.0 9\n1013.0 0.25\n", "x", phases)
	if err != nil || len(rows) != 2 || rows[0].Num("step_s") != 0.6 || rows[0].Num("steps") != 2 || rows[1].Num("step_s") != 0.25 || rows[1].Str("way") != guarded {
		t.Errorf("%v %v", rows, err)
	}
	if _, err := stepTimes("ready\nTraceback\n", "x", phases); err == nil {
		t.Error("nonsense is read")
	}
}

func TestParseSteps(t *testing.T) {
	row := bench.Row{}
	err := parseSteps("134217728 2 cuMemAlloc_v2 2 1 - 0\n0 2 cuDevicePrimaryCtxRetain 0 0 torch.OutOfMemoryError: CUDA out of memory.\n", 3, row)
	if err == nil || row.Num("granted") != 128*mib || row.Num("on") != 1 || row.Num("refused") != 2 ||
		row.Num("freed") != 2 || row.Str("obstacle") != "torch.OutOfMemoryError: CUDA out of memory." ||
		row.Str("refusal") != "out of memory by cuMemAlloc_v2; out of memory by cuDevicePrimaryCtxRetain" {
		t.Errorf("%v %v", row, err)
	}
}
