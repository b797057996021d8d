package channels

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/laxity/laxity/actuator"
	"github.com/laxity/laxity/actuator/enforce/channels"
	"github.com/laxity/laxity/actuator/journal"
	"github.com/laxity/laxity/bench/tenant"
	"github.com/laxity/laxity/internal/daemon"
)

// up is a real `laxity up`, which is started and killed again and again.
type up struct {
	m       *measurement
	program string
	dir     string
	process *daemon.Process // nil: none runs
	record  *channels.Enforcer
	patient bool // somebody has been off each time so far
}

func (m *measurement) newUp() (u *up, err error) {
	u = &up{m: m, dir: filepath.Join(m.Dir, "up"), patient: true}
	if u.program, err = daemon.Program("laxity"); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(u.dir, 0o700); err != nil {
		return nil, err
	}
	// It is only read here.
	u.record, err = channels.New(channels.Options{Driver: m.driver, Dir: channels.Folder(actuator.DefaultLockDir, u.stateDir())})
	return u, err
}

func (u *up) stateDir() string { return filepath.Join(u.dir, "state", "actuator") }

func (u *up) args(arbitrate string, addresses []string) []string {
	args := []string{"up", "--device=" + u.m.GPU.Device, "--state-dir=" + filepath.Join(u.dir, "state"), "--lock-dir=" + filepath.Join(u.dir, "lock"),
		"--containers.label=" + tenant.Label + "=" + u.m.Name, "--hold=channels", "--memory-guard=off", "--swap=off", "--arbitrate=" + arbitrate,
		"--web.listen-address=" + addresses[0], "--actuator.listen-address=" + addresses[1]}
	if u.m.env.DockerHost != "" {
		args = append(args, "--docker.host="+u.m.env.DockerHost)
	}
	return args
}

// start starts it and waits until it is ready.
func (u *up) start(ctx context.Context, arbitrate string) (err error) {
	addresses, err := daemon.FreeAddresses(ctx, 2)
	if err != nil {
		return err
	}
	u.process, err = daemon.Start(ctx, u.dir, addresses[1], u.program, u.args(arbitrate, addresses)...)
	return err
}

// begin does not wait.
func (u *up) begin(ctx context.Context, arbitrate string) (err error) {
	addresses, err := daemon.FreeAddresses(ctx, 2)
	if err != nil {
		return err
	}
	u.process, err = daemon.Begin(ctx, u.dir, u.program, u.args(arbitrate, addresses)...)
	return err
}

// stop ends it if it runs, and waits until its guardian has ended.
func (u *up) stop(ctx context.Context) error {
	if p := u.process; p != nil {
		u.process = nil
		_ = p.Stop() // it may have been killed
	}
	err := u.m.until(context.WithoutCancel(ctx), undoneMost, func() bool { return !journal.Taken(journal.GuardianLock(u.stateDir())) })
	if err != nil {
		return fmt.Errorf("a guardian does not end: %w", err)
	}
	return nil
}

// off is how many processes are off by the record.
func (u *up) off() (n int) {
	all, err := u.record.Records()
	if err != nil {
		return 0
	}
	for _, r := range all {
		if r.Off() {
			n++
		}
	}
	return n
}

// guardians are the processes that guard it: their command names its state folder.
func (u *up) guardians() (pids []int) {
	all, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	for _, e := range all {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		line, err := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
		if err != nil {
			continue
		}
		words := bytes.Split(bytes.TrimRight(line, "\x00"), []byte{0})
		if len(words) > 1 && string(words[1]) == "guardian" && strings.Contains(string(line), u.stateDir()) {
			pids = append(pids, pid)
		}
	}
	return pids
}
