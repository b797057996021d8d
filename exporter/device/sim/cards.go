package sim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"time"

	"github.com/laxity/laxity/exporter/device"
	"github.com/laxity/laxity/exporter/device/sim/compute"
)

// cardState is what a card reports besides what its units do. Guarded by GPU.mu.
type cardState struct {
	uuid      string
	index     int
	mig       bool
	power     Power
	throttled map[string]bool
	xids      map[uint64]uint64
	lastXids  map[uint64]time.Time
	ecc       map[string]uint64
}

func newCard(c Card, index int) *cardState {
	s := &cardState{
		uuid: c.UUID, index: index, mig: len(c.Instances) > 0, power: c.Power,
		throttled: map[string]bool{}, xids: map[uint64]uint64{}, lastXids: map[uint64]time.Time{},
		ecc: map[string]uint64{device.Corrected: 0, device.Uncorrected: 0},
	}
	for _, reason := range device.ThrottleReasons {
		s.throttled[reason] = false
	}
	return s
}

// Xid makes the driver report an error of this number.
func (g *GPU) Xid(uuid string, number uint64) error {
	return g.card(uuid, func(c *cardState) {
		c.xids[number]++
		c.lastXids[number] = time.Now()
	})
}

// AddECC adds memory errors: device.Corrected or device.Uncorrected ones.
func (g *GPU) AddECC(uuid, kind string, n uint64) error {
	return g.card(uuid, func(c *cardState) { c.ecc[kind] += n })
}

// Throttle makes a card lower its clocks for one of device.ThrottleReasons, or ends that. Work is as
// fast as before.
func (g *GPU) Throttle(uuid, reason string, on bool) error {
	return g.card(uuid, func(c *cardState) { c.throttled[reason] = on })
}

func (g *GPU) card(uuid string, f func(*cardState)) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, c := range g.cards {
		if c.uuid == uuid {
			f(c)
			return nil
		}
	}
	return fmt.Errorf("%w: %s", ErrNoDevice, uuid)
}

// cardReader reads the cards' condition. What is per time is since its last reading.
type cardReader struct {
	gpu    *GPU
	loads  int
	closed bool
	at     time.Time // of the last reading
	spent  map[*unit]used
	copied map[int]map[Direction]uint64 // by card
}

func (g *GPU) newCardReader() *cardReader { return &cardReader{gpu: g, loads: -1} }

// Cards implements device.WithCards.
func (l *local) Cards() (device.Cards, error) { return l.gpu.newCardReader(), nil }

// Read implements device.Cards.
func (r *cardReader) Read(context.Context) (device.CardReading, error) {
	if r.closed {
		return device.CardReading{}, errors.New("simulated GPU: read after Close")
	}
	reading, err := r.read(context.Background())
	if err != nil {
		return device.CardReading{}, fmt.Errorf("simulated GPU: %w", err)
	}
	return reading, nil
}

// Close implements device.Cards.
func (r *cardReader) Close() error {
	r.closed = true
	return nil
}

func (r *cardReader) read(ctx context.Context) (device.CardReading, error) {
	g := r.gpu
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := g.answers(ctx, &r.loads); err != nil {
		return device.CardReading{}, err
	}
	now := g.advance()
	out := device.CardReading{Time: now}
	spent, copied := map[*unit]used{}, map[int]map[Direction]uint64{}
	for _, c := range g.cards {
		card, lost := r.readCard(c, now, spent, copied)
		if !lost {
			out.Cards = append(out.Cards, card)
		}
	}
	r.at, r.spent, r.copied = now, spent, copied
	if len(out.Cards) == 0 && len(g.cards) > 0 {
		return device.CardReading{}, ErrLost
	}
	return out, nil
}

func (r *cardReader) readCard(c *cardState, now time.Time, spent map[*unit]used, copied map[int]map[Direction]uint64) (_ device.Card, lost bool) {
	g := r.gpu
	energy := c.power.Idle * now.Sub(g.loaded).Seconds()
	watts, busy := c.power.Idle, 0.0
	out := device.Card{UUID: c.uuid, Index: c.index, MIG: c.mig}
	bytes := map[Direction]uint64{}
	for _, u := range g.units {
		if u.info.Index != c.index {
			continue
		}
		lost = lost || u.lost
		energy += u.compute.Energy() - u.before
		watts += u.compute.Power(samplePeriod)
		busy = max(busy, u.compute.Utilization(g.opts.lag()))
		for d, n := range u.copied {
			bytes[d] += n
		}
		spent[u] = used{maps.Clone(u.compute.Spent()), maps.Clone(u.compute.Present()), maps.Clone(u.compute.Came())}
		if !c.mig {
			out.SM = r.shares(u, now)
			r.present(u, now, &out)
		}
	}
	copied[c.index] = bytes
	energy = math.Floor(energy*1e3) / 1e3 // as a driver counts: mJ
	out.Power, out.Energy, out.PowerLimit = &watts, &energy, &c.power.Limit
	heat := watts / c.power.Limit
	out.Temperature = map[string]float64{device.GPUSensor: math.Round(30 + 45*heat), device.MemorySensor: math.Round(35 + 50*heat)}
	out.Clock = map[string]float64{device.SMClock: 345e6, device.MemoryClock: 3201e6}
	if busy > 0 {
		out.Clock[device.SMClock] = 1980e6
	}
	out.Throttled, out.Xids, out.ECC = maps.Clone(c.throttled), maps.Clone(c.xids), maps.Clone(c.ecc)
	out.LastXids = maps.Clone(c.lastXids)
	if watts >= c.power.Limit {
		out.Throttled["power_cap"] = true
	}
	if before, ok := r.copied[c.index]; ok && now.After(r.at) {
		past := now.Sub(r.at).Seconds()
		out.PCIe = map[string]float64{
			device.Receive:  float64(bytes[In]-before[In]) / past,
			device.Transmit: float64(bytes[Out]-before[Out]) / past,
		}
	}
	return out, lost
}

// shares is how much of the time since the last reading each process computed, in whole
// percents, as a driver reports it. At the first reading nobody has.
func (r *cardReader) shares(u *unit, now time.Time) map[int]float64 {
	past := now.Sub(r.at).Seconds()
	before, ok := r.spent[u]
	if !ok || past <= 0 {
		return map[int]float64{}
	}
	out := r.perProcess(u.compute.Spent(), before.computed, past)
	for pid, share := range out {
		out[pid] = math.Round(share*100) / 100
	}
	return out
}

// used is what the owners of a unit have had of it.
type used struct {
	computed, present map[compute.Owner]time.Duration
	came              map[compute.Owner]uint64
}

// present is how much of the time since the last reading the context of each process was on the card, and
// how often that changed.
func (r *cardReader) present(u *unit, now time.Time, out *device.Card) {
	before, ok := r.spent[u]
	past := now.Sub(r.at).Seconds()
	s := &device.Switches{From: r.at, Of: map[int]float64{}}
	out.Switches = s
	if !ok || past <= 0 {
		return
	}
	s.Seconds = past
	for owner, n := range u.compute.Came() {
		if came := n - before.came[owner]; came > 0 {
			s.Of[r.gpu.pids[owner]] += float64(came) / past
			s.Rate += float64(came) / past
		}
	}
	if s.Rate == 0 {
		return
	}
	out.Present = r.perProcess(u.compute.Present(), before.present, past)
}

// perProcess is how much more each process has had since before, as a part of the time that passed, 0–1.
func (r *cardReader) perProcess(now, before map[compute.Owner]time.Duration, past float64) map[int]float64 {
	out := map[int]float64{}
	for owner, d := range now {
		if share := (d - before[owner]).Seconds() / past; share > 0 {
			pid := r.gpu.pids[owner]
			out[pid] = min(1, out[pid]+share)
		}
	}
	return out
}

// Cards implements device.WithCards, with a connection of its own.
func (c *client) Cards() (device.Cards, error) { return &cardClient{client{socket: c.socket}}, nil }

// cardClient asks a server for the cards' condition.
type cardClient struct{ client client }

// Read implements device.Cards.
func (c *cardClient) Read(ctx context.Context) (device.CardReading, error) {
	var w wireCards
	if err := c.client.read(ctx, "cards", &w); err != nil {
		return device.CardReading{}, err
	}
	if w.Error != "" {
		return device.CardReading{}, fmt.Errorf("simulated GPU: %s", w.Error)
	}
	return w.CardReading, nil
}

// Close implements device.Cards.
func (c *cardClient) Close() error { return c.client.Close() }

// read asks once, and connects first where that is needed.
func (c *client) read(ctx context.Context, request string, into any) error {
	if c.closed {
		return errors.New("simulated GPU: read after Close")
	}
	if c.conn == nil {
		if err := c.connect(ctx); err != nil {
			return err
		}
	}
	text, err := c.ask(ctx, request)
	if err != nil {
		return c.fail(ctx, err)
	}
	if err := json.Unmarshal([]byte(text), into); err != nil {
		return c.fail(ctx, fmt.Errorf("answer: %w", err))
	}
	return nil
}

var (
	_ device.WithCards = (*local)(nil)
	_ device.WithCards = (*client)(nil)
)
