package rm_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/laxity/laxity/internal/rm"
	"github.com/laxity/laxity/internal/rm/rmtest"
)

func TestSlice(t *testing.T) {
	fake, m := machine(t)
	_, g := startTenant(fake, 10)
	ctx := t.Context()
	if d := must(m.Slice(ctx, g)); d != 2048*time.Microsecond {
		t.Errorf("libcuda's own slice is %v", d)
	}
	for _, d := range []time.Duration{rm.MinSlice, time.Millisecond, rm.MaxSlice} {
		if err := m.SetSlice(ctx, g, d); err != nil {
			t.Fatal(err)
		}
		if got := must(m.Slice(ctx, g)); got != d {
			t.Errorf("set %v, read %v", d, got)
		}
	}
	for _, d := range []time.Duration{-1, 0, 999, rm.MaxSlice + 1} {
		if err := m.SetSlice(ctx, g, d); err == nil {
			t.Errorf("a slice of %v was accepted", d)
		}
	}
}

func TestSwitch(t *testing.T) {
	fake, m := machine(t)
	p := fake.Start(10)
	client := p.OpenFile(5)
	groups := []rm.Group{p.Context(client, 0), p.AddChannels(p.Context(client, 0), 150), p.Context(p.OpenFile(6), 1)}
	_, neighbour := startTenant(fake, 11)
	for range 3 { // switching twice does no harm
		for _, on := range []bool{false, false, true, true} {
			before := fake.Calls("ioctl")
			if err := m.Switch(t.Context(), groups, on); err != nil {
				t.Fatal(err)
			}
			t.Logf("on %v: %d ioctls", on, fake.Calls("ioctl")-before)
			for _, g := range groups {
				want := []uint32(nil)
				if !on {
					want = g.Channels
				}
				if off := fake.Off(g); !slices.Equal(off, want) {
					t.Errorf("on %v: of %v %d channels are off, want %d", on, g, len(off), len(want))
				}
				for _, s := range must(m.State(t.Context(), g)) {
					if s.Enabled != on || !slices.Contains(g.Channels, s.Channel) {
						t.Errorf("on %v: state %+v", on, s)
					}
				}
			}
			if len(fake.Off(neighbour)) > 0 {
				t.Error("another process was switched off")
			}
		}
	}
}

// all calls Slice, SetSlice, Switch and State.
func all(ctx context.Context, m *rm.Manager, g rm.Group) map[string]error {
	_, slice := m.Slice(ctx, g)
	_, state := m.State(ctx, g)
	return map[string]error{
		"slice": slice, "set slice": m.SetSlice(ctx, g, time.Millisecond), "state": state,
		"off": m.Switch(ctx, []rm.Group{g}, false), "on": m.Switch(ctx, []rm.Group{g}, true),
	}
}

func TestNothingIsControlledThatIsNotTheGroup(t *testing.T) {
	for name, c := range map[string]struct {
		change func(fake *rmtest.RM, p *rmtest.Process, g *rm.Group)
		want   error
		not    []string // calls that it does not concern
	}{
		"killed": {func(_ *rmtest.RM, p *rmtest.Process, _ *rm.Group) { p.Kill() }, rm.ErrGone, nil},
		"exits":  {func(_ *rmtest.RM, p *rmtest.Process, _ *rm.Group) { p.Exit() }, rm.ErrGone, nil},
		"exits while it is duplicated": {func(_ *rmtest.RM, p *rmtest.Process, g *rm.Group) {
			p.CloseFile(g.FD)
			p.Exit()
		}, rm.ErrGone, nil},
		"its PID is used again": {func(fake *rmtest.RM, p *rmtest.Process, _ *rm.Group) {
			p.Kill()
			fake.Advance(time.Second)
			startTenant(fake, 10)
		}, rm.ErrGone, nil},
		"the descriptor is closed": {func(_ *rmtest.RM, p *rmtest.Process, g *rm.Group) { p.CloseFile(g.FD) }, rm.ErrChanged, nil},
		"the descriptor is another file": {func(_ *rmtest.RM, p *rmtest.Process, g *rm.Group) {
			p.OpenFile(g.FD)
		}, rm.ErrChanged, nil},
		"a file is planted": {func(_ *rmtest.RM, p *rmtest.Process, g *rm.Group) {
			p.Plant(g.FD, rm.Device{})
		}, rm.ErrChanged, nil},
		"another device is planted": {func(_ *rmtest.RM, p *rmtest.Process, g *rm.Group) {
			p.Plant(g.FD, rm.Device{Char: true, NVIDIA: true, Minor: 0})
		}, rm.ErrChanged, nil},
		"the group is freed": {func(_ *rmtest.RM, p *rmtest.Process, g *rm.Group) { p.Free(g.Client, g.Handle) }, rm.ErrChanged, nil},
		"its handle is used again": {func(_ *rmtest.RM, p *rmtest.Process, g *rm.Group) {
			p.Reuse(g.Client, g.Handle)
		}, rm.ErrChanged, nil},
		"a channel is of another group": {func(_ *rmtest.RM, p *rmtest.Process, g *rm.Group) {
			g.Channels[3] = p.Context(g.Client, 0).Channels[0]
		}, rm.ErrChanged, []string{"slice", "set slice"}},
		"a channel's handle is used again": {func(_ *rmtest.RM, p *rmtest.Process, g *rm.Group) {
			p.Reuse(g.Client, g.Channels[3])
		}, rm.ErrChanged, []string{"slice", "set slice"}},
		"the record is wrong": {func(_ *rmtest.RM, _ *rmtest.Process, g *rm.Group) { g.Class = 0xa06d }, rm.ErrChanged, nil},
		"the client is of another": {func(fake *rmtest.RM, _ *rmtest.Process, g *rm.Group) {
			_, other := startTenant(fake, 11)
			g.Client = other.Client
		}, rm.ErrChanged, nil},
	} {
		t.Run(name, func(t *testing.T) {
			fake, m := machine(t)
			p, g := startTenant(fake, 10)
			c.change(fake, p, &g)
			fake.Hook(func(call *rmtest.Call) {
				if call.Cmd == rmtest.CmdDisable && call.Params[0] == 1 {
					t.Error("channels were switched off")
				}
			})
			for call, err := range all(t.Context(), m, g) {
				if !slices.Contains(c.not, call) && !errors.Is(err, c.want) {
					t.Errorf("%s: %v, want %v", call, err, c.want)
				}
			}
		})
	}
}

func TestOffIsAllOrNone(t *testing.T) {
	fake, m := machine(t)
	p := fake.Start(10)
	client := p.OpenFile(5)
	groups := []rm.Group{p.AddChannels(p.Context(client, 0), 200), p.Context(client, 1), p.Context(p.OpenFile(6), 1)}
	for refused := 1; ; refused++ {
		n := 0
		fake.Hook(func(c *rmtest.Call) {
			if c.Cmd == rmtest.CmdDisable {
				if n++; n == refused {
					c.Status = rmtest.StatusInvalidState
				}
			}
		})
		err := m.Switch(t.Context(), groups, false)
		if n < refused {
			if refused < 6 || err != nil {
				t.Fatalf("%d calls switch all off, and then %v", refused-1, err)
			}
			return
		}
		if err == nil || !strings.Contains(err.Error(), "NV_ERR_INVALID_STATE") {
			t.Fatalf("call %d was refused: %v", refused, err)
		}
		for _, g := range groups {
			if off := fake.Off(g); len(off) > 0 {
				t.Errorf("call %d was refused, and %d channels of %v stay off", refused, len(off), g)
			}
		}
	}
}

func TestOffWithAChannelThatVanished(t *testing.T) {
	fake, m := machine(t)
	p, g := startTenant(fake, 10)
	if err := m.Switch(t.Context(), []rm.Group{g}, false); err != nil {
		t.Fatal(err)
	}
	p.Free(g.Client, g.Channels[2])
	if err := m.Switch(t.Context(), []rm.Group{g}, true); err != nil || len(fake.Off(g)) > 0 {
		t.Errorf("on: %v, off are %v", err, fake.Off(g))
	}
	if err := m.Switch(t.Context(), []rm.Group{g}, false); !errors.Is(err, rm.ErrChanged) || len(fake.Off(g)) > 0 {
		t.Errorf("off: %v, off are %v", err, fake.Off(g))
	}
}

func TestOnTriesEveryChannel(t *testing.T) {
	fake, m := machine(t)
	p := fake.Start(10)
	client := p.OpenFile(5)
	a, b := p.Context(client, 0), p.Context(client, 1)
	groups := []rm.Group{a, b}
	if err := m.Switch(t.Context(), groups, false); err != nil {
		t.Fatal(err)
	}
	p.Reuse(client, a.Handle)
	if err := m.Switch(t.Context(), groups, true); !errors.Is(err, rm.ErrChanged) {
		t.Errorf("on, with one group gone: %v", err)
	}
	if off := fake.Off(b); len(off) > 0 {
		t.Errorf("the other's channels %v stay off", off)
	}
}

// disabled are the channels that a call of CmdDisable names.
func disabled(params []byte) (channels []uint32) {
	for i := range binary.LittleEndian.Uint32(params[4:]) {
		channels = append(channels, binary.LittleEndian.Uint32(params[280+4*i:]))
	}
	return channels
}

// A handle of a group that is another object by now is left alone, and keeps no other channel of the group off.
func TestOnLeavesOutWhatIsNoChannelOfTheGroup(t *testing.T) {
	for name, change := range map[string]func(p *rmtest.Process, g *rm.Group) (wrong uint32){
		"its handle is used again": func(p *rmtest.Process, g *rm.Group) uint32 {
			p.Reuse(g.Client, g.Channels[1])
			return g.Channels[1]
		},
		"it is of another group": func(p *rmtest.Process, g *rm.Group) uint32 {
			g.Channels = append([]uint32{p.Context(g.Client, 0).Channels[0]}, g.Channels...)
			return g.Channels[0]
		},
	} {
		for way, on := range map[string]func(m *rm.Manager, g rm.Group) error{
			"switch": func(m *rm.Manager, g rm.Group) error { return m.Switch(t.Context(), []rm.Group{g}, true) },
			"as one": func(m *rm.Manager, g rm.Group) error {
				_, err := m.SwitchAsOne(t.Context(), []rm.Group{g}, true)
				return err
			},
		} {
			t.Run(name+", "+way, func(t *testing.T) {
				fake, m := machine(t)
				p, g := startTenant(fake, 10)
				if err := m.Switch(t.Context(), []rm.Group{g}, false); err != nil {
					t.Fatal(err)
				}
				wrong := change(p, &g)
				fake.Hook(func(c *rmtest.Call) {
					if c.Cmd == rmtest.CmdDisable && slices.Contains(disabled(c.Params), wrong) {
						t.Errorf("the wrong object %#x was switched", wrong)
					}
				})
				if err := on(m, g); !errors.Is(err, rm.ErrChanged) || !strings.Contains(err.Error(), fmt.Sprintf("%#x", wrong)) {
					t.Errorf("error = %v", err)
				}
				if off := fake.Off(g); len(off) > 0 {
					t.Errorf("channels %x stay off", off)
				}
			})
		}
	}
}

func TestSwitchRefusesGroupsOfTwoProcesses(t *testing.T) {
	fake, m := machine(t)
	_, a := startTenant(fake, 10)
	_, b := startTenant(fake, 11)
	if err := m.Switch(t.Context(), []rm.Group{a, b}, false); err == nil || len(fake.Off(a)) > 0 {
		t.Errorf("groups of two processes: %v", err)
	}
	if err := m.Switch(t.Context(), nil, false); err != nil {
		t.Errorf("no group: %v", err)
	}
}

func TestErrorsHaveNames(t *testing.T) {
	fake, m := machine(t)
	_, g := startTenant(fake, 10)
	for _, c := range []struct {
		status uint32
		errno  syscall.Errno
		want   string
		is     error
	}{
		{rmtest.StatusNotSupported, 0, "NV_ERR_NOT_SUPPORTED", rm.ErrUnsupported},
		{rmtest.StatusInvalidParamStruct, 0, "NV_ERR_INVALID_PARAM_STRUCT", nil},
		{0, syscall.EPERM, "not permitted", syscall.EPERM},
	} {
		fake.Hook(func(call *rmtest.Call) {
			if call.Cmd != rmtest.CmdHandleInfo {
				call.Status, call.Errno = c.status, c.errno
			}
		})
		for call, err := range all(t.Context(), m, g) {
			if err == nil || !strings.Contains(err.Error(), c.want) || (c.is != nil && !errors.Is(err, c.is)) {
				t.Errorf("%s: %v, want %s", call, err, c.want)
			}
		}
	}
}
