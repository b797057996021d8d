package channels_test

import (
	"os/exec"
	"runtime"
	"slices"
	"syscall"
	"testing"

	"github.com/laxity/laxity/actuator/enforce/channels"
	"github.com/laxity/laxity/actuator/enforce/proc"
	"github.com/laxity/laxity/internal/rm"
)

func TestStateOf(t *testing.T) {
	runtime.LockOSThread() // who traces is a thread
	defer runtime.UnlockOSThread()
	begin := func(attr *syscall.SysProcAttr) (*exec.Cmd, rm.Process) {
		cmd := exec.CommandContext(t.Context(), "sleep", "1000")
		cmd.SysProcAttr = attr
		check(t, cmd.Start(), nil)
		stat, _ := proc.ReadStat("/proc", cmd.Process.Pid)
		return cmd, rm.Process{PID: cmd.Process.Pid, Start: stat.Start}
	}
	state := func(p rm.Process, want ...channels.State) {
		t.Helper()
		for {
			got, err := channels.StateOf(p)
			check(t, err, nil)
			if got == want[len(want)-1] {
				return
			}
			if !slices.Contains(want, got) {
				t.Fatalf("state %v, want %v", got, want)
			}
		}
	}
	cmd, p := begin(nil)
	state(p, channels.Lives)
	state(rm.Process{PID: p.PID, Start: p.Start - 1}, channels.Gone)
	check(t, cmd.Process.Kill(), nil)
	state(p, channels.Lives, channels.Exiting, channels.Gone) // a zombie holds nothing
	_ = cmd.Wait()
	state(p, channels.Gone)

	cmd, p = begin(&syscall.SysProcAttr{Ptrace: true})
	state(p, channels.Lives, channels.Traced)
	check(t, cmd.Process.Kill(), nil)
	_ = cmd.Wait()
}
