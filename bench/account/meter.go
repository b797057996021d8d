package account

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/laxity/laxity/bench/program"
	"github.com/laxity/laxity/bench/rig"
	"github.com/laxity/laxity/exporter"
	"github.com/laxity/laxity/exporter/task"
)

// reading is what the exporter says at a moment.
type reading struct {
	at           float64 // Unix seconds
	counter      float64 // J, of the card
	uses         map[string]task.Use
	unattributed map[string]float64 // J, by reason
}

// meter is an exporter that watches the programs.
type meter struct {
	snapshots <-chan *task.Snapshot
	stop      func()
	last      float64 // the counter of the last reading
}

// openMeter starts an exporter, and returns when it knows the card.
func openMeter(ctx context.Context, r *rig.Rig) (*meter, error) {
	e, err := exporter.New(exporter.Options{Device: r.GPU.Device, Keep: r.Tenants.Made})
	if err != nil {
		return nil, err
	}
	running, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() { defer close(ended); _ = e.Run(running) }()
	m := &meter{snapshots: e.Watch(running), stop: func() { cancel(); <-ended }}
	if _, err := m.next(ctx); err != nil {
		m.close()
		return nil, err
	}
	return m, nil
}

func (m *meter) close() { m.stop() }

// readLimit is how long a card may take to be read again; it is, once a second.
const readLimit = 20 * time.Second

// next waits for the next reading of the card.
func (m *meter) next(ctx context.Context) (reading, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, readLimit, fmt.Errorf("the exporter has read no card's energy for %v", readLimit))
	defer cancel()
	why := ""
	for {
		select {
		case s, ok := <-m.snapshots:
			if !ok {
				return reading{}, errors.New("the exporter has ended")
			}
			why = s.Health.CardsError
			if len(s.Cards) != 1 || s.Cards[0].Energy == nil || *s.Cards[0].Energy == m.last {
				continue
			}
			m.last = *s.Cards[0].Energy
			return readingOf(s.Cards[0]), nil
		case <-ctx.Done():
			return reading{}, fmt.Errorf("%w: %s", context.Cause(ctx), why)
		}
	}
}

func readingOf(c task.Card) reading {
	r := reading{at: program.Unix(time.Now()), counter: *c.Energy, uses: map[string]task.Use{}, unattributed: maps.Clone(c.Unattributed)}
	for _, u := range c.Uses {
		for _, name := range []string{heavy, light} {
			if strings.HasSuffix(u.Container, "-"+name) {
				r.uses[name] = u
			}
		}
	}
	return r
}
