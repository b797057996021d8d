package core

import (
	"maps"
	"math"
	"slices"
	"time"

	"github.com/laxity/laxity/exporter/account"
	"github.com/laxity/laxity/exporter/device"
	"github.com/laxity/laxity/exporter/task"
)

const (
	// usesFor is how long what a container had of a card stays after it is gone: a rule with
	// a range must find it.
	usesFor = 15 * time.Minute
	// idleStep is the part by which a card's idle power must differ from the stored one to be
	// stored again: it moves a little each second.
	idleStep = 0.02
	// samplesFor is how long after the end of a process samples may still be its own.
	samplesFor = 15 * time.Second
	// computedFor is how long what was read of a card's context switches counts, if no reading follows: they are
	// read once a second.
	computedFor = 2500 * time.Millisecond
)

// cards is the cards' condition, and who used them.
type cards struct {
	published []task.Card // of the last reading, for snapshots, which share it; none while it failed
	ledgers   map[string]*account.Ledger
	idle      map[string]float64   // W, by UUID, as stored
	owners    map[int]owner        // by PID; also of processes that have ended
	names     map[string]string    // of containers in the ledgers, by id
	computed  map[string]computed  // by UUID
	clients   map[string]time.Time // when a client of MPS was last listed, by UUID
}

// computed is how much of the time each process computed on a card, 0–1, by PID.
type computed struct {
	at     time.Time
	shares map[int]float64
}

// share returns how much of the time a process computes on a card: what the last reading of the card's
// context switches showed, or else the driver's samples.
func (c *cards) share(uuid string, pid int, samples float64, now time.Time) float64 {
	if is, ok := c.computed[uuid]; ok && now.Sub(is.at) < computedFor && !math.IsNaN(samples) {
		return is.shares[pid]
	}
	return samples
}

// owner is the container of a process.
type owner struct {
	container, name string
	// seen is when a reading last found the process. If it ended before that, it is when Tick first saw this.
	seen time.Time
}

func newCards() cards {
	return cards{ledgers: map[string]*account.Ledger{}, idle: map[string]float64{}, owners: map[int]owner{}, names: map[string]string{}, computed: map[string]computed{}, clients: map[string]time.Time{}}
}

// CardsDown notes that no card's condition could be read. None is published then: nobody can
// tell an old one from a fresh one. The accounts go on with the next reading.
func (m *Core) CardsDown(reason string) {
	if m.health.CardsError != reason || m.cards.published != nil {
		m.health.CardsError, m.cards.published = reason, nil
		m.changed = true
	}
}

// Cards takes a reading of the cards' condition.
func (m *Core) Cards(r device.CardReading) {
	if m.health.CardsError != "" {
		m.health.CardsError, m.changed = "", true
	}
	m.measured = true
	m.takeOwners(r.Time)
	for _, c := range r.Cards {
		l := m.cards.ledgers[c.UUID]
		if l == nil {
			l = account.New(m.cards.idle[c.UUID])
			m.cards.ledgers[c.UUID] = l
		}
		m.openAccounts(l, c.UUID, r.Time)
		shares, exact := c.SM, false
		// With MPS the context that is on the card is the server's, whoever of its clients computes.
		if c.Present != nil && c.SM != nil && !m.mpsOn(c.UUID, r.Time) {
			shares, exact = account.Computed(c.Present, c.SM), true
			m.cards.computed[c.UUID] = computed{r.Time, shares}
		} else { // nobody takes turns: the samples are right
			delete(m.cards.computed, c.UUID)
		}
		f := account.Fact{At: r.Time, Shares: m.cards.sharesOf(shares), Exact: exact}
		if c.Energy != nil {
			f.Energy, f.HasEnergy = *c.Energy, true
		}
		l.Take(f)
		m.learnIdle(c.UUID, l.IdleWatts())
	}
	kept := map[string]bool{}
	for _, l := range m.cards.ledgers {
		for id := range m.containers {
			l.Keep(id, r.Time)
		}
		l.Forget(r.Time.Add(-usesFor))
		for _, u := range l.Totals().Uses {
			kept[u.Container] = true
		}
	}
	for id := range m.cards.names {
		if !kept[id] {
			delete(m.cards.names, id)
		}
	}
	m.cards.publish(r.Cards)
}

// learnIdle notes that a card's idle power must be stored, if it is another one: after a restart
// the card may be busy for long.
func (m *Core) learnIdle(uuid string, watts float64) {
	if stored := m.cards.idle[uuid]; math.Abs(watts-stored) > idleStep*stored {
		m.cards.idle[uuid] = watts
		m.changes.idle(uuid, watts)
	}
}

// takeOwners notes to which container each process belongs, and what the containers are called.
func (m *Core) takeOwners(now time.Time) {
	for _, p := range m.byPID {
		m.noteOwner(p, now)
	}
	for _, o := range m.cards.owners {
		if _, known := m.cards.names[o.container]; !known {
			m.cards.names[o.container] = o.name
		}
	}
	for id, b := range m.containers {
		m.cards.names[id] = b.Name
	}
}

// noteOwner notes to which container a process belongs, if that is known.
func (m *Core) noteOwner(p *process, seen time.Time) {
	if b := m.container(p.Container); b != nil && !p.MPSServer {
		m.cards.owners[p.PID] = owner{b.ID, b.Name, seen}
	} else if p.Container == "" || p.MPSServer {
		delete(m.cards.owners, p.PID) // it has the PID of one that has ended
	}
}

// forgetOwners forgets the processes whose samples have all been read.
func (c *cards) forgetOwners(now time.Time) {
	for pid, o := range c.owners {
		switch {
		case o.seen.IsZero():
			o.seen = now
			c.owners[pid] = o
		case now.Sub(o.seen) > samplesFor:
			delete(c.owners, pid)
		}
	}
}

// openAccounts begins those of the containers that have a process on the card, so that their
// counters begin at 0.
func (m *Core) openAccounts(l *account.Ledger, uuid string, now time.Time) {
	for _, p := range m.processes {
		if _, on := p.on[uuid]; on && !p.MPSServer && m.containers[p.Container] != nil {
			l.Open(p.Container, now)
		}
	}
}

// mpsOn reports whether processes compute on a card through an MPS server. The server is known by its
// name alone, which any program can take. So it counts only beside a client, or one that has just ended,
// where the device tells clients apart.
func (m *Core) mpsOn(uuid string, now time.Time) bool {
	server, client := false, now.Sub(m.cards.clients[uuid]) < computedFor
	for _, p := range m.processes {
		if use, on := p.on[uuid]; on {
			server, client = server || p.MPSServer, client || use.mps
		}
	}
	told := slices.ContainsFunc(m.gpus, func(g device.GPU) bool { return g.UUID == uuid && g.TellsMPS })
	return server && (client || !told)
}

// sharesOf adds up the shares of processes by container.
func (c *cards) sharesOf(sm map[int]float64) map[string]float64 {
	if sm == nil {
		return nil
	}
	shares := map[string]float64{}
	for pid, share := range sm {
		shares[c.owners[pid].container] += share // without an owner: account.Other
	}
	return shares
}

// publish makes what snapshots say until the next reading: there are far more of them.
func (c *cards) publish(all []device.Card) {
	c.published = nil
	for _, card := range all {
		out := task.Card{
			UUID: card.UUID, Index: card.Index, Power: card.Power, PowerLimit: card.PowerLimit, Energy: card.Energy,
			Temperature: card.Temperature, Clock: card.Clock, Throttled: card.Throttled, Xids: card.Xids, LastXids: card.LastXids, ECC: card.ECC,
			PCIe: card.PCIe, NVLink: card.NVLink, Switches: c.switches(card),
		}
		c.account(&out)
		c.published = append(c.published, out)
	}
}

// switches is what was seen of a card's context switches, by container.
func (c *cards) switches(card device.Card) *task.Switches {
	if card.Switches == nil || card.SM == nil { // without samples nobody knows how long the card was idle
		return nil
	}
	out := &task.Switches{From: card.Switches.From, Seconds: card.Switches.Seconds, Rate: card.Switches.Rate}
	shares := card.SM
	if is, ok := c.computed[card.UUID]; ok {
		shares = is.shares
	}
	out.Used = c.sharesOf(shares)
	maps.DeleteFunc(out.Used, func(id string, share float64) bool { return id == account.Other || share <= 0 })
	present, came := map[string]float64{}, map[string]float64{}
	for pid, rate := range card.Switches.Of {
		if id := c.owners[pid].container; id != "" {
			present[id] += card.Present[pid]
			came[id] += rate
		}
	}
	for id, rate := range came {
		if card.Present != nil && rate > 0 {
			if out.Stays == nil {
				out.Stays = map[string]float64{}
			}
			out.Stays[id] = present[id] / rate
		}
	}
	return out
}

// account fills in who used the card, as far as it says.
func (c *cards) account(out *task.Card) {
	t := c.ledgers[out.UUID].Totals()
	if !t.HasSeconds {
		return
	}
	other := account.Use{}
	for _, u := range t.Uses {
		if u.Container == account.Other {
			other = u
			continue
		}
		use := task.Use{ContainerID: u.Container, Container: c.names[u.Container], GPUSeconds: u.Seconds}
		if t.HasEnergy {
			use.Energy = &u.Energy
		}
		out.Uses = append(out.Uses, use)
	}
	out.OtherSeconds = &other.Seconds
	if t.HasEnergy {
		out.Unattributed = map[string]float64{"idle": t.Idle, "other": other.Energy, "unknown": t.Unknown}
	}
}
