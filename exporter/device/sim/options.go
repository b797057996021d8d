package sim

import (
	"fmt"
	"log/slog"
	"math"
	"time"

	"github.com/laxity/laxity/exporter/device/sim/compute"
)

const (
	mib = 1 << 20
	gib = 1 << 30

	samplePeriod = 200 * time.Millisecond // of utilisation
	fallLag      = 770 * time.Millisecond // from the last kernel's end to a reading of 0
)

// Options says what is simulated. The zero value is one card that behaves like
// an H200. A duration of 0 means the default, a negative one means none.
type Options struct {
	Cards  []Card // default: one
	Driver string // version; default "580.0-sim"

	ContextTime time.Duration // how long creating a context takes; default 200 ms
	// ContextShared is what of ContextTime the driver does for one process at a time,
	// on all cards, going round among those that create one: with n of them each takes
	// n times as long for it. A frozen process asks for no more of it. Default: none.
	ContextShared time.Duration
	ContextMemory uint64        // bytes that a context holds; default 566 MiB
	ListDelay     time.Duration // from the context call until the process is listed; default 150 ms
	AllocRate     float64       // bytes per second of an allocation; default: it takes no time
	ReleaseTime   time.Duration // from the end of a process, with which it leaves the list, until its memory is free; default none

	TimeSlice  time.Duration // that a new process has while several have kernels ready; default 2048 µs
	SwitchCost time.Duration // lost when a kernel is taken off for another one; default 300 µs

	RiseLag time.Duration // from a kernel's begin to a full reading; default 300 ms

	Checkpoint CheckpointCost
	Channels   ChannelCost

	Logger *slog.Logger // default: none
}

// Card is one GPU. With Instances it is in MIG mode: work runs on the instances
// only, and they are listed in its place.
type Card struct {
	UUID      string // default GPU-00000000-0000-0000-0000-<index>
	Name      string // default "Simulated GPU"
	Memory    uint64 // bytes; default 141 GiB
	Speed     Speed  // default H200()
	Power     Power  // default H200Power()
	Instances []Instance
}

// Instance is one MIG instance of a card.
type Instance struct {
	UUID   string  // default MIG-00000000-0000-<card>-0000-<index>
	Name   string  // default the card's, with " MIG"
	Memory uint64  // bytes; default the card's times Share
	Share  float64 // of the card's speed, 0–1; default an even share
}

// Speed is how fast a card works when one process has it to itself.
type Speed struct {
	Flops   float64 // floating-point operations per second of a naive kernel
	CopyIn  float64 // bytes per second of one process, host to device
	CopyOut float64 // bytes per second of one process, device to host
}

// H200 is the speed measured with 16384² naive matrix multiplications from
// pageable memory: 1.6 s a kernel, 0.21 s for two matrices in, 0.56 s for one out.
func H200() Speed { return Speed{Flops: 5.5e12, CopyIn: 1.02e10, CopyOut: 1.92e9} }

// Power is what a card draws, in W.
type Power struct {
	Idle  float64 // always
	Work  float64 // besides, while a process computes of which SetPower says nothing else
	Limit float64
}

// H200Power is what an H200 draws, roughly.
func H200Power() Power { return Power{Idle: 75, Work: 450, Limit: 700} }

// Scaled slows the card so that an n×n matrix multiplication has the phases that
// a 16384² one has on s. Tasks then last as long and need a fraction of the
// memory: with n = 512 a tenant moves 1 MiB per matrix.
func (s Speed) Scaled(n int) Speed {
	ratio := float64(n) / 16384
	return Speed{
		Flops:   s.Flops * ratio * ratio * ratio,
		CopyIn:  s.CopyIn * ratio * ratio,
		CopyOut: s.CopyOut * ratio * ratio,
	}
}

// Faster multiplies every rate.
func (s Speed) Faster(factor float64) Speed {
	return Speed{Flops: s.Flops * factor, CopyIn: s.CopyIn * factor, CopyOut: s.CopyOut * factor}
}

func (s Speed) valid() bool {
	for _, v := range []float64{s.Flops, s.CopyIn, s.CopyOut} {
		if !(v > 0) || math.IsInf(v, 0) {
			return false
		}
	}
	return true
}

func (o Options) withDefaults() Options {
	set := func(d *time.Duration, fallback time.Duration) {
		if *d == 0 {
			*d = fallback
		}
		*d = max(*d, 0)
	}
	set(&o.ContextTime, 200*time.Millisecond)
	set(&o.ContextShared, 0)
	set(&o.ListDelay, 150*time.Millisecond)
	o.ReleaseTime = max(o.ReleaseTime, 0)
	if o.TimeSlice <= 0 {
		o.TimeSlice = 2048 * time.Microsecond
	}
	set(&o.SwitchCost, 300*time.Microsecond)
	set(&o.RiseLag, 300*time.Millisecond)
	o.Checkpoint = o.Checkpoint.withDefaults()
	o.Channels = o.Channels.withDefaults()
	if o.Driver == "" {
		o.Driver = "580.0-sim"
	}
	if o.ContextMemory == 0 {
		o.ContextMemory = 566 * mib
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if len(o.Cards) == 0 {
		o.Cards = make([]Card, 1)
	}
	cards := make([]Card, len(o.Cards))
	for i, c := range o.Cards {
		cards[i] = c.withDefaults(i)
	}
	o.Cards = cards
	return o
}

func (c Card) withDefaults(index int) Card {
	if c.UUID == "" {
		c.UUID = fmt.Sprintf("GPU-00000000-0000-0000-0000-%012d", index)
	}
	if c.Name == "" {
		c.Name = "Simulated GPU"
	}
	if c.Memory == 0 {
		c.Memory = 141 * gib
	}
	if c.Speed == (Speed{}) {
		c.Speed = H200()
	}
	if c.Power == (Power{}) {
		c.Power = H200Power()
	}
	instances := make([]Instance, len(c.Instances))
	for i, in := range c.Instances {
		if in.UUID == "" {
			in.UUID = fmt.Sprintf("MIG-00000000-0000-%04d-0000-%012d", index, i)
		}
		if in.Name == "" {
			in.Name = c.Name + " MIG"
		}
		if in.Share == 0 {
			in.Share = 1 / float64(len(c.Instances))
		}
		if in.Memory == 0 {
			in.Memory = uint64(float64(c.Memory) * in.Share)
		}
		instances[i] = in
	}
	c.Instances = instances
	return c
}

func (o Options) check() error {
	seen := map[string]bool{}
	for i, c := range o.Cards {
		if !c.Speed.valid() {
			return fmt.Errorf("card %d: every rate of its speed must be above 0", i)
		}
		uuids := []string{c.UUID}
		for j, in := range c.Instances {
			if !(in.Share > 0 && in.Share <= 1) {
				return fmt.Errorf("card %d instance %d: share %v is not in (0, 1]", i, j, in.Share)
			}
			uuids = append(uuids, in.UUID)
		}
		for _, uuid := range uuids {
			if seen[uuid] {
				return fmt.Errorf("UUID %s occurs twice", uuid)
			}
			seen[uuid] = true
		}
	}
	if o.AllocRate < 0 || math.IsNaN(o.AllocRate) || math.IsInf(o.AllocRate, 0) {
		return fmt.Errorf("an allocation rate of %v bytes per second", o.AllocRate)
	}
	if o.ContextShared > o.ContextTime {
		return fmt.Errorf("ContextShared (%v) is more than ContextTime (%v)", o.ContextShared, o.ContextTime)
	}
	if o.RiseLag < samplePeriod || o.RiseLag > fallLag {
		return fmt.Errorf("RiseLag is %v; want %v to %v", o.RiseLag, samplePeriod, fallLag)
	}
	return nil
}

func (o Options) lag() compute.Utilization {
	return compute.Utilization{Period: samplePeriod, Rise: o.RiseLag, Fall: fallLag}
}
