package evaluator_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/laxity/laxity/cmd/internal/evaluator"
)

// While nothing can want a decision the evaluator evaluates once a second, and when that ends at
// once, but never more often than Interval.
func TestPace(t *testing.T) {
	const interval = 100 * time.Millisecond
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		var isCalm atomic.Bool
		var evaluations atomic.Int32
		wake := make(chan struct{}, 1)
		isCalm.Store(true)
		opts := n.options()
		opts.Interval, opts.Calm, opts.Wake, opts.Now = interval, isCalm.Load, wake, time.Now
		opts.Targets[0].Gatherer = prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) {
			evaluations.Add(1)
			return n.Gather()
		})
		e, err := evaluator.New(opts)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- e.Run(ctx) }()
		expect := func(during time.Duration, least, most int32) {
			t.Helper()
			before := evaluations.Load()
			time.Sleep(during)
			synctest.Wait()
			if got := evaluations.Load() - before; got < least || got > most {
				t.Errorf("%d evaluations in %s, expected %d to %d", got, during, least, most)
			}
		}
		synctest.Wait()
		expect(10*evaluator.CalmInterval+interval/2, 10, 10)
		isCalm.Store(false)
		wake <- struct{}{}
		expect(interval, 1, 1)
		expect(10*interval, 10, 10)
		isCalm.Store(true)
		expect(interval, 1, 1)
		for range 20 { // it asks far more often than it may
			select {
			case wake <- struct{}{}:
			default:
			}
			expect(interval/10, 0, 1)
		}
		expect(5*evaluator.CalmInterval, 5, 7)
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
