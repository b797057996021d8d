package tracker_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/laxity/laxity/exporter/device"
)

// slowCards takes as long as the test says for a reading.
type slowCards struct {
	answer chan error
	reads  int
}

func (c *slowCards) Read(ctx context.Context) (device.CardReading, error) {
	c.reads++
	select {
	case err := <-c.answer:
		return device.CardReading{Time: time.Now(), Cards: []device.Card{{UUID: "GPU-a"}}}, err
	case <-ctx.Done():
		return device.CardReading{}, ctx.Err()
	}
}

func (c *slowCards) Close() error { return nil }

// However long a card takes to report its condition, the process lists are read at their pace.
func TestCardsDelayNoReading(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		cards := &slowCards{answer: make(chan error)}
		b.cards = cards
		b.start()
		time.Sleep(time.Second)
		before := b.card.count()
		time.Sleep(10 * time.Second) // the clock of the bubble
		if n := b.card.count() - before; n < 10 || cards.reads != 1 {
			t.Errorf("%d readings in 10 s beside %d hanging ones of the cards, want at least 10 beside one", n, cards.reads)
		}
		cards.answer <- nil
		synctest.Wait()
		if s := b.Snapshot(); len(s.Cards) != 1 || s.Health.CardsError != "" {
			t.Errorf("cards %+v, error %q", s.Cards, s.Health.CardsError)
		}
		time.Sleep(time.Second)
		cards.answer <- errors.New("gone")
		synctest.Wait()
		if s := b.Snapshot(); len(s.Cards) != 0 || s.Health.CardsError != "gone" || !s.Health.DeviceUp {
			t.Errorf("cards %+v, health %+v", s.Cards, s.Health)
		}
		b.stop()
	})
}
