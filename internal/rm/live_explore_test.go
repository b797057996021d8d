package rm

import (
	"flag"
	"math/bits"
	"os"
	"testing"
	"time"

	"github.com/laxity/laxity/internal/needtest"
	"github.com/laxity/laxity/internal/rm/rmtest/tenant"
)

var explore = flag.Bool("explore", false, "try on a real GPU what nothing here relies on")

// childHandle is NV0000_CTRL_CMD_CLIENT_GET_CHILD_HANDLE_PARAMS of ctrl0000client.h.
type childHandle struct{ Parent, Class, Object uint32 }

// allocatedChannels is NV2080_CTRL_FIFO_GET_ALLOCATED_CHANNELS_PARAMS of ctrl2080fifo.h.
type allocatedChannels struct {
	Runlist uint32
	Mask    [4096 / 32]uint32
}

// foundBy returns a tenant's process and the groups that are found of it; the test fails if there are none.
func foundBy(t *testing.T, m *Manager, run *tenant.Tenant) (Process, []Group) {
	t.Helper()
	stat, err := m.kernel.Stat(run.PID())
	if err != nil {
		t.Fatal(err)
	}
	p := Process{run.PID(), stat.Start}
	groups, err := m.Find(t.Context(), p)
	if err != nil || len(groups) == 0 {
		t.Fatal(groups, err)
	}
	return p, groups
}

// ownSubdevice returns a client of our own with a subdevice of the group's GPU, until the test ends.
func ownSubdevice(t *testing.T, m *Manager, p Process, g Group) (own *file, root, subdevice uint32) {
	t.Helper()
	var id gpuID
	if err := m.with(p, g.FD, func(dup *file) error { return dup.control(g.Client, g.Subdevice, cmdGPUID, &id) }); err != nil {
		t.Fatal(err)
	}
	card, err := m.kernel.OpenGPU(g.GPU)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.kernel.Close(card) })
	if own, err = m.open(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(own.close)
	if root, subdevice, err = own.subdevice(id.GPU); err != nil {
		t.Fatalf("a subdevice of our own: %v", err)
	}
	return own, root, subdevice
}

// TestLiveExplore tells what the driver does with calls that nothing here relies on: the
// objects of a client, its first child of a class, and whether a client of our own may
// switch another's channels off, over no duplicate at all.
func TestLiveExplore(t *testing.T) {
	if _, err := os.Stat(controlDevice); err != nil || !*explore {
		needtest.GPU.Skipf(t, "needs a GPU of NVIDIA and -explore: %v", err)
	}
	m := New(System(), Options{})
	ctx := t.Context()
	if err := m.Mark(ctx); err != nil {
		t.Fatal(err)
	}
	time.Sleep(30 * time.Millisecond)
	run, err := tenant.Start(ctx, t.TempDir(), tenant.Options{Kind: tenant.Spin, Contexts: 2, Most: time.Minute, Churn: 3000})
	if err != nil {
		t.Fatal(err)
	}
	defer run.Kill()
	p, groups := foundBy(t, m, run)
	t.Logf("with a gap of %d, groups of two contexts, with 3000 allocations between them: %+v", m.opt.Gap, groups)
	for fd, f := range m.known(p).files {
		for _, c := range f.clients {
			client := c.handle
			t.Logf("descriptor %d: client %#x", fd, client)
			if err := m.with(p, fd, func(dup *file) error {
				device := uint32(0)
				for h, absent := uint32(objectBase), 0; absent < 20000; h++ {
					class, err := dup.info(client, h, indexClass)
					if err != nil {
						if absent++; absent == 1 {
							t.Logf("client %#x object %#x: %v", client, h, err)
						}
						continue
					}
					absent = 0
					parent, _ := dup.info(client, h, indexParent)
					t.Logf("client %#x object %#x class %#x parent %#x", client, h, class, parent)
					if class == classDevice && device == 0 {
						device = h
					}
				}
				for _, ask := range []childHandle{
					{Parent: client, Class: classDevice}, {Parent: device, Class: classSubdevice},
					{Parent: device, Class: classGroup}, {Parent: groups[0].Handle, Class: 0xc86f},
				} {
					err := dup.control(client, client, 0xd05, &ask)
					t.Logf("client %#x: first child of %#x of class %#x is %#x: %v", client, ask.Parent, ask.Class, ask.Object, err)
				}
				return nil
			}); err != nil {
				t.Error(err)
			}
		}
	}
	g := groups[0]
	if err := m.with(p, g.FD, func(dup *file) error {
		for runlist := range uint32(4) {
			ask := allocatedChannels{Runlist: runlist}
			err := dup.control(g.Client, g.Subdevice, 0x20801119, &ask)
			n := 0
			for _, word := range ask.Mask {
				n += bits.OnesCount32(word)
			}
			t.Logf("run list %d has %d channels: %v", runlist, n, err)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
	own, root, subdevice := ownSubdevice(t, m, p, g)
	// If these differ, one call over a client of our own says of a handle whether any process has it.
	_, err = own.info(g.Client, g.Client, indexClass)
	t.Logf("asked over another file, a client that exists: %v", err)
	_, err = own.info(root+0x1000, root+0x1000, indexClass)
	t.Logf("asked over another file, a client that does not: %v", err)
	d := disable{Disable: 1, Count: uint32(len(g.Channels))}
	for i, channel := range g.Channels {
		d.Clients[i], d.Channels[i] = g.Client, channel
	}
	err = own.control(root, subdevice, cmdDisable, &d)
	time.Sleep(20 * time.Millisecond)
	stood := run.Beat()
	time.Sleep(50 * time.Millisecond)
	t.Logf("off over a client of our own: %v; the kernel beat %d times in 50 ms after", err, run.Beat()-stood)
	d.Disable = 0
	t.Logf("on over a client of our own: %v", own.control(root, subdevice, cmdDisable, &d))
	if err := m.Switch(ctx, groups, true); err != nil {
		t.Error(err)
	}
	if err := run.Stop(ctx); err != nil {
		t.Error(err)
	}
}
