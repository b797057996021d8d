package sim

import (
	"errors"
	"math"
	"time"

	"github.com/laxity/laxity/exporter/device"
)

// wireReading is a device.Reading as the protocol's JSON. What is not known (NaN)
// is null.
type wireReading struct {
	Error string    `json:"error,omitempty"`
	Time  time.Time `json:"time"`
	GPUs  []wireGPU `json:"gpus"`
}

type wireGPU struct {
	UUID           string        `json:"uuid"`
	Index          int           `json:"index"`
	Parent         string        `json:"parent,omitempty"`
	Name           string        `json:"name"`
	Driver         string        `json:"driver"`
	MemoryTotal    uint64        `json:"memory_total"`
	MemoryUsed     uint64        `json:"memory_used"`
	Utilization    *float64      `json:"utilization"`
	Processes      []wireProcess `json:"processes"`
	ProcessesError string        `json:"processes_error,omitempty"`
	TellsMPS       bool          `json:"tells_mps,omitempty"`
}

type wireProcess struct {
	PID           int      `json:"pid"`
	MemoryUsed    uint64   `json:"memory_used"`
	SMUtilization *float64 `json:"sm_utilization"`
	MPS           bool     `json:"mps,omitempty"`
}

// wireCards is a device.CardReading as the protocol's JSON.
type wireCards struct {
	Error string `json:"error,omitempty"`
	device.CardReading
}

func toWire(r device.Reading) wireReading {
	w := wireReading{Time: r.Time}
	for _, g := range r.GPUs {
		wg := wireGPU{
			UUID: g.UUID, Index: g.Index, Parent: g.Parent, Name: g.Name, Driver: g.Driver,
			MemoryTotal: g.MemoryTotal, MemoryUsed: g.MemoryUsed, Utilization: known(g.Utilization), TellsMPS: g.TellsMPS,
		}
		for _, p := range g.Processes {
			wg.Processes = append(wg.Processes, wireProcess{p.PID, p.MemoryUsed, known(p.SMUtilization), p.MPS})
		}
		if g.ProcessesErr != nil {
			wg.ProcessesError = g.ProcessesErr.Error()
		}
		w.GPUs = append(w.GPUs, wg)
	}
	return w
}

func (w wireReading) reading() device.Reading {
	r := device.Reading{Time: w.Time}
	for _, wg := range w.GPUs {
		g := device.GPU{
			UUID: wg.UUID, Index: wg.Index, Parent: wg.Parent, Name: wg.Name, Driver: wg.Driver,
			MemoryTotal: wg.MemoryTotal, MemoryUsed: wg.MemoryUsed, Utilization: orNaN(wg.Utilization), TellsMPS: wg.TellsMPS,
		}
		for _, p := range wg.Processes {
			g.Processes = append(g.Processes, device.Process{
				PID: p.PID, MemoryUsed: p.MemoryUsed, SMUtilization: orNaN(p.SMUtilization), MPS: p.MPS,
			})
		}
		if wg.ProcessesError != "" {
			g.ProcessesErr = errors.New(wg.ProcessesError)
		}
		r.GPUs = append(r.GPUs, g)
	}
	return r
}

func known(v float64) *float64 {
	if math.IsNaN(v) {
		return nil
	}
	return &v
}

func orNaN(v *float64) float64 {
	if v == nil {
		return math.NaN()
	}
	return *v
}
