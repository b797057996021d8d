package tracker

import (
	"testing"
	"time"

	"github.com/laxity/laxity/exporter/task"
	"github.com/laxity/laxity/exporter/tracker/core"
)

func TestInterval(t *testing.T) {
	const ms = time.Millisecond
	up := core.Activity{DeviceUp: true, Sensor: task.SourceUprobe}
	with := func(change func(*core.Activity)) core.Activity { a := up; change(&a); return a }
	for name, tc := range map[string]struct {
		activity core.Activity
		newcomer bool
		took     time.Duration
		want     time.Duration
	}{
		"idle":                              {up, false, ms / 10, time.Second},
		"device down":                       {core.Activity{Placeless: 1}, true, 0, time.Second},
		"a container came":                  {up, true, ms / 10, 20 * ms},
		"a task without a place":            {with(func(a *core.Activity) { a.Unfinished, a.Placeless = 1, 1 }), false, ms / 10, 20 * ms},
		"the same, many processes":          {with(func(a *core.Activity) { a.Unfinished, a.Placeless = 1, 1 }), false, 24 * ms, 240 * ms},
		"tasks in their places":             {with(func(a *core.Activity) { a.Unfinished = 3 }), false, ms / 10, 100 * ms},
		"the same, half a millisecond":      {with(func(a *core.Activity) { a.Unfinished = 3 }), false, ms / 2, 500 * ms},
		"one of 20 waits":                   {with(func(a *core.Activity) { a.Unfinished, a.Waiting = 20, 1 }), false, 2 * ms, 400 * ms},
		"the same, 100 processes":           {with(func(a *core.Activity) { a.Unfinished = 100 }), false, 24 * ms, time.Second},
		"only the device, a task may start": {core.Activity{DeviceUp: true, Sensor: task.SourceDevice, MayStart: true}, false, ms / 10, 20 * ms},
		"only the device, nothing there":    {core.Activity{DeviceUp: true, Sensor: task.SourceDevice}, false, ms / 10, time.Second},
	} {
		if got := interval(tc.activity, tc.newcomer, tc.took, 20*ms, time.Second); got != tc.want {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
	}
}

func TestHurryKeepsToTheCostOfReadings(t *testing.T) {
	const ms = time.Millisecond
	for name, tc := range map[string]struct{ since, took, want time.Duration }{
		"long after a reading":             {time.Second, ms / 10, 20 * ms},
		"just after one":                   {0, ms / 10, 20 * ms},
		"just after one, many processes":   {0, 24 * ms, 240 * ms},
		"a moment later":                   {100 * ms, 24 * ms, 140 * ms},
		"when the rest is nearly over":     {230 * ms, 24 * ms, 20 * ms},
		"long after one, many processes":   {time.Second, 24 * ms, 20 * ms},
		"a reading that took very long":    {0, 3 * time.Second, time.Second},
		"a reading that began in the past": {0, -time.Second, 20 * ms},
	} {
		if got := soon(tc.since, tc.took, 20*ms, time.Second); got != tc.want {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
	}
}
