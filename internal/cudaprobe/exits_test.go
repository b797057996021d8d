package cudaprobe_test

import (
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/laxity/laxity/internal/cudaprobe"
	"github.com/laxity/laxity/internal/cudaprobe/cudatest"
)

func TestExiting(t *testing.T) {
	h := watched(t, cudaprobe.Options{})
	if _, err := os.Stat("/sys/kernel/btf/vmlinux"); err != nil {
		t.Skip("this kernel does not describe its types (BTF): ends are told by pidfd alone")
	}
	if !h.Stats().Exits {
		t.Fatal("Exiting is not told, though the kernel describes its types")
	}
	bystander := h.built.Start(t)
	bystander.Open()
	p := h.built.Start(t)
	h.expect(t, p, cudaprobe.InitCalled, p.CallInThread("cuInit"))
	p.Hold("cuStreamSynchronize") // a second thread, which dies with the process
	begun := time.Now()
	for _, pid := range []int{bystander.PID, p.PID} { // the bystander did not call cuInit
		if err := unix.Kill(pid, unix.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
	e := h.expect(t, p, cudaprobe.Exiting, cudatest.Called{Before: begun, After: time.Now().Add(patience)})
	if e.Time.After(time.Now()) {
		t.Errorf("told to exit at %v, which is yet to come", e.Time)
	}
	h.none(t)
}

func TestLeavingAContext(t *testing.T) {
	h := watched(t, cudaprobe.Options{})
	p := h.built.Start(t)
	h.expect(t, p, cudaprobe.InitCalled, p.Call("cuInit"))
	h.expect(t, p, cudaprobe.ContextCalled, p.Call("cuCtxCreate_v2"))
	p.CallFor("cuStreamSynchronize", 20*time.Millisecond) // some time passes
	c := p.Call("cuCtxDestroy_v2")
	from := h.expect(t, p, cudaprobe.Leaving, c)
	to := h.expect(t, p, cudaprobe.Left, c)
	if !to.Time.After(from.Time) {
		t.Errorf("left at %v, before it began to leave at %v", to.Time, from.Time)
	}
	h.none(t)
}

// A thread that ends alone is no end of the process.
func TestExitOfAThreadIsNotTold(t *testing.T) {
	h := watched(t, cudaprobe.Options{})
	p := h.built.Start(t)
	h.expect(t, p, cudaprobe.InitCalled, p.Call("cuInit"))
	for range 20 {
		p.CallInThread("cuLaunchKernel") // the thread ends after the call
	}
	h.none(t)
}
