package page

import (
	"fmt"
	"testing"
	"time"

	"github.com/laxity/laxity/exporter/task"
)

// One rendering of a busy node: what all who look cost together, four times a
// second at most.
func BenchmarkFrame(b *testing.B) {
	for _, tasks := range []int{20, 200, 2000} {
		b.Run(fmt.Sprint(tasks), func(b *testing.B) {
			s := newStage(b)
			snap := *s.facts.Snapshot
			for i := range tasks {
				t := aTask(fmt.Sprint("b", i), fmt.Sprint("c", i%20), -float64(i%280)-1, 5, task.Running)
				snap.Ended = append(snap.Ended, ended(t, t.Start.Time.Sub(t0).Seconds()+0.9))
			}
			s.history.Observe(&snap)
			size := 0
			for b.Loop() {
				size = 0
				for _, html := range s.frame(variant{window: 5 * time.Minute, may: true}) {
					size += len(html)
				}
			}
			b.ReportMetric(float64(size)/1024, "KiB")
		})
	}
}
