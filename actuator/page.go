package actuator

import (
	"context"

	"github.com/laxity/laxity/actuator/page"
	"github.com/laxity/laxity/actuator/page/view"
	"github.com/laxity/laxity/actuator/source"
)

// openPage makes the live page.
func (a *Actuator) openPage() (err error) {
	a.page, err = page.New(page.Options{Facts: a.pageFacts, Guard: a.access, Actor: a, Ranking: a.o.Ranking, Logger: a.log, Now: a.o.Now})
	return err
}

// runPage has the page remember until stop is called, which waits for its end.
func (a *Actuator) runPage(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() { defer close(ended); a.page.Run(ctx) }()
	return func() { cancel(); <-ended }
}

// pageFacts is what is published, in the page's terms.
func (a *Actuator) pageFacts() view.Facts {
	_, deadlines := a.o.Source.(source.DeadlineSetter)
	decisions, _ := a.decisions.Last(0)
	return view.FactsOf(a.State(), a.arbiter.Snapshot(), decisions, deadlines)
}
