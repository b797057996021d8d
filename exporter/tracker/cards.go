package tracker

import (
	"context"
	"time"

	"github.com/laxity/laxity/exporter/device"
)

// cardNews is one answer about the cards' condition.
type cardNews struct {
	device.CardReading
	err error
}

// readCards reads the cards' condition at its own pace: its calls are slow, and no reading of the process
// lists waits for them.
func readCards(ctx context.Context, cards device.Cards, every time.Duration, out chan<- cardNews) {
	ticks := time.NewTicker(every)
	defer ticks.Stop()
	for {
		r, err := cards.Read(ctx)
		select {
		case out <- cardNews{r, err}:
		case <-ctx.Done():
			return
		}
		select {
		case <-ticks.C:
		case <-ctx.Done():
			return
		}
	}
}

func (l *loop) onCards(n cardNews) {
	if n.err != nil {
		l.m.CardsDown(n.err.Error())
		return
	}
	l.m.Cards(n.CardReading)
}
