package rm

import (
	"context"
	"fmt"
)

// ChannelState is what the resource manager reports of one channel.
type ChannelState struct {
	Channel   uint32
	Enabled   bool // able to run: false while it is switched off
	Scheduled bool // on the run list
	Bound     bool
}

// State reads back whether the channels of a group are on. It uses objects of our own, which live
// for the call: the process is not touched. The header marks this control as one for debugging, so
// a driver may refuse it.
func (m *Manager) State(ctx context.Context, g Group) ([]ChannelState, error) {
	var states []ChannelState
	err := m.do(ctx, "state", g.PID, func(context.Context, func() bool) (err error) {
		states, err = m.state(g)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read the state of %v: %w", g, err)
	}
	return states, nil
}

func (m *Manager) state(g Group) (states []ChannelState, err error) {
	var id gpuID
	if err := m.with(g.Process, g.FD, func(f *file) error {
		if _, err := f.checkChannels(g); err != nil {
			return err
		}
		return f.control(g.Client, g.Subdevice, cmdGPUID, &id)
	}); err != nil {
		return nil, err
	}
	card, err := m.kernel.OpenGPU(g.GPU)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", g.GPU, err)
	}
	defer func() { _ = m.kernel.Close(card) }()
	own, err := m.open()
	if err != nil {
		return nil, err
	}
	defer own.close()
	root, subdevice, err := own.subdevice(id.GPU)
	if err != nil {
		return nil, err
	}
	diag, err := own.alloc(root, subdevice, classDiag, nil)
	if err != nil {
		return nil, err
	}
	for _, channel := range g.Channels {
		s := channelState{Client: g.Client, Channel: channel}
		if err := own.control(root, diag, cmdChannelState, &s); err != nil {
			return nil, fmt.Errorf("channel %#x: %w", channel, err)
		}
		states = append(states, ChannelState{
			Channel: channel, Enabled: s.Enabled != 0, Scheduled: s.Scheduled != 0, Bound: s.Bound != 0,
		})
	}
	return states, nil
}

// subdevice makes a client of our own, with an object for the GPU.
func (f *file) subdevice(gpu uint32) (root, subdevice uint32, err error) {
	if root, err = f.alloc(0, 0, classClient, nil); err != nil {
		return 0, 0, err
	}
	info := gpuIDInfo{GPU: gpu}
	if err := f.control(root, root, cmdGPUIDInfo, &info); err != nil {
		return 0, 0, err
	}
	subdevice, err = f.onGPU(root, info.Device, info.Subdevice)
	return root, subdevice, err
}

// onGPU makes an object of our client root for a GPU.
func (f *file) onGPU(root, device, subdevice uint32) (handle uint32, err error) {
	parent, err := f.alloc(root, root, classDevice, &deviceParams{Device: device})
	if err != nil {
		return 0, err
	}
	return f.alloc(root, parent, classSubdevice, &subdeviceParams{subdevice})
}
