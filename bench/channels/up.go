package channels

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/laxity/laxity/actuator/enforce"
	"github.com/laxity/laxity/actuator/enforce/channels"
	"github.com/laxity/laxity/actuator/journal"
	"github.com/laxity/laxity/bench/rig"
	"github.com/laxity/laxity/internal/daemon"
	"github.com/laxity/laxity/internal/statefolder"
)

// up is a real `laxity up`, which is started and killed again and again.
type up struct {
	m       *measurement
	process *daemon.Process // nil: none runs
	record  *channels.Enforcer
	state   string // the actuator's folder
	patient bool   // somebody has been off each time so far
}

func (m *measurement) newUp(ctx context.Context) (*up, error) {
	u := &up{m: m, patient: true}
	c, err := u.command(ctx, "never")
	if err != nil {
		return nil, err
	}
	u.state = c.StateDir()
	state, err := statefolder.Of(u.state)
	if err != nil {
		return u, err
	}
	// It is only read here.
	u.record, err = channels.New(channels.Options{Driver: m.driver, Dir: channels.Folder(enforce.RunDir, state)})
	return u, err
}

func (u *up) command(ctx context.Context, arbitrate string) (rig.Command, error) {
	return u.m.UpCommand(ctx, u.m.env, "killed", "--hold=channels", "--memory-guard=off", "--swap=off", "--arbitrate="+arbitrate)
}

// start starts it and waits until it is ready.
func (u *up) start(ctx context.Context, arbitrate string) error {
	c, err := u.command(ctx, arbitrate)
	if err != nil {
		return err
	}
	u.process, err = daemon.Start(ctx, c.Dir, c.Address, c.Program, c.Args...)
	return err
}

// begin does not wait.
func (u *up) begin(ctx context.Context, arbitrate string) error {
	c, err := u.command(ctx, arbitrate)
	if err != nil {
		return err
	}
	u.process, err = daemon.Begin(ctx, c.Dir, c.Program, c.Args...)
	return err
}

// stop ends it if it runs, and waits until its guardian has ended.
func (u *up) stop(ctx context.Context) error {
	if p := u.process; p != nil {
		u.process = nil
		_ = p.Stop() // it may have been killed
	}
	err := u.m.until(context.WithoutCancel(ctx), undoneMost, func() bool { return !journal.Taken(journal.GuardianLock(u.state)) })
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
		if len(words) > 1 && string(words[1]) == "guardian" && strings.Contains(string(line), u.state) {
			pids = append(pids, pid)
		}
	}
	return pids
}
