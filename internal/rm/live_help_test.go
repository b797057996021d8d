package rm_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/laxity/laxity/internal/cc"
	"github.com/laxity/laxity/internal/needtest"
	"github.com/laxity/laxity/internal/rm"
	"github.com/laxity/laxity/internal/rm/rmtest/tenant"
)

var (
	recordTo = flag.String("record", "", "write the calls of the test on a real GPU to this file, as lines of JSON")
	cycles   = flag.Int("cycles", 100, "how often the test on a real GPU switches a kernel off and on")
)

// needGPU skips where there is no GPU of NVIDIA, or nothing to build the tenant with.
func needGPU(t *testing.T) rm.Kernel {
	t.Helper()
	if _, err := os.Stat("/dev/nvidiactl"); err != nil {
		needtest.GPU.Skipf(t, "needs a GPU of NVIDIA: %v", err)
	}
	return rm.System()
}

// table is what the tests print at the end.
var table []string

func figure(name, format string, args ...any) {
	table = append(table, fmt.Sprintf("%-44s %s", name, fmt.Sprintf(format, args...)))
}

func TestMain(m *testing.M) {
	flag.Parse()
	code := m.Run()
	if len(table) > 0 {
		fmt.Println("\n" + strings.Join(table, "\n"))
	}
	os.Exit(code)
}

// counter counts the ioctls of a Kernel, and says what the slow ones waited for.
type counter struct {
	rm.Kernel
	ioctls atomic.Int64
}

func (c *counter) Ioctl(fd int, request uint32, arg, params []byte) error {
	const slow = 200 * time.Millisecond
	c.ioctls.Add(1)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	began, thread := time.Now(), unix.Gettid()
	what := fmt.Sprintf("%#x %x", request, arg[:12])
	look := time.AfterFunc(slow, func() { waitsFor(what, thread) })
	err := c.Kernel.Ioctl(fd, request, arg, params)
	look.Stop()
	if took := time.Since(began); took > slow {
		figure("slow call", "%s took %v", what, took)
	}
	return err
}

// waitsFor prints where a thread of ours is in the kernel, and who else uses the driver.
func waitsFor(what string, thread int) {
	stack, err := os.ReadFile(fmt.Sprintf("/proc/self/task/%d/stack", thread))
	fmt.Printf("slow: %s\n%s %v\n", what, stack, err)
	links, _ := filepath.Glob("/proc/[0-9]*/fd/*")
	seen := map[string]bool{}
	for _, link := range links {
		pid := strings.Split(link, "/")[2]
		if to, err := os.Readlink(link); err == nil && strings.HasPrefix(to, "/dev/nvidia") && !seen[pid] {
			seen[pid] = true
			name, _ := os.ReadFile("/proc/" + pid + "/cmdline")
			fmt.Printf("slow: process %s has %s: %q\n", pid, to, name)
			tasks, _ := filepath.Glob("/proc/" + pid + "/task/*/stack")
			for _, task := range tasks {
				stack, _ := os.ReadFile(task)
				if strings.Contains(string(stack), "nvidia") {
					fmt.Printf("slow: %s\n%s", task, stack)
				}
			}
		}
	}
}

func liveTenant(t *testing.T, kind string, contexts int) (*tenant.Tenant, rm.Process) {
	t.Helper()
	return startLive(t, tenant.Options{Kind: kind, Contexts: contexts, Most: 2 * time.Minute})
}

func startLive(t *testing.T, o tenant.Options) (*tenant.Tenant, rm.Process) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	run, err := tenant.Start(ctx, t.TempDir(), o)
	if errors.Is(err, cc.ErrNoCompiler) {
		needtest.GPU.Skip(t, err)
	} else if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(run.Kill)
	stat, err := rm.System().Stat(run.PID())
	if err != nil {
		t.Fatal(err)
	}
	return run, rm.Process{PID: run.PID(), Start: stat.Start}
}

func quantile(all []time.Duration, q float64) time.Duration {
	slices.Sort(all)
	return all[min(len(all)-1, int(q*float64(len(all))))].Round(time.Microsecond)
}

func spread(all []time.Duration) string {
	return fmt.Sprintf("p50 %v  p99 %v  max %v  (n=%d)", quantile(all, 0.5), quantile(all, 0.99), quantile(all, 1), len(all))
}

// watch follows a tenant's counter until stop: last is when it last moved.
type watch struct {
	last atomic.Int64 // UnixNano
	stop chan struct{}
	done chan struct{}
}

func follow(run *tenant.Tenant) *watch {
	w := &watch{stop: make(chan struct{}), done: make(chan struct{})}
	go func() {
		defer close(w.done)
		for beat := run.Beat(); ; {
			select {
			case <-w.stop:
				return
			default:
			}
			if now := run.Beat(); now != beat {
				beat = now
				w.last.Store(time.Now().UnixNano())
			}
		}
	}()
	return w
}

func (w *watch) end() { close(w.stop); <-w.done }

func (w *watch) moved() time.Time { return time.Unix(0, w.last.Load()) }

// movedAfter waits until the counter moves after since, and says how long that took.
func (w *watch) movedAfter(t *testing.T, since time.Time) time.Duration {
	t.Helper()
	for deadline := since.Add(5 * time.Second); ; {
		if at := w.moved(); at.After(since) {
			return at.Sub(since)
		}
		if time.Now().After(deadline) {
			t.Fatal("the counter does not move")
		}
	}
}

// used is the memory in use on the first GPU, in MiB.
func used(t *testing.T) string {
	t.Helper()
	out, err := exec.Command("nvidia-smi", "-i", "0", "--query-gpu=memory.used", "--format=csv,noheader,nounits").Output()
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(string(out))
}
