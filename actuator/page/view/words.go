package view

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/laxity/laxity/actuator/placement"
	"github.com/laxity/laxity/exporter/task"
)

// seconds is a length of time for people: three digits are enough.
func seconds(f float64) string {
	sign := ""
	if f < 0 {
		sign, f = "−", -f
	}
	switch {
	case math.IsNaN(f):
		return "unknown"
	case math.IsInf(f, 0):
		return sign + "∞"
	case f < 0.0005:
		return "0 s"
	case f < 0.9995:
		return fmt.Sprintf("%s%.0f ms", sign, 1000*f)
	case f < 99.95:
		return fmt.Sprintf("%s%.1f s", sign, f)
	case f < 3600:
		return fmt.Sprintf("%s%d min %02d s", sign, int(f)/60, int(f)%60)
	case f < 48*3600:
		return fmt.Sprintf("%s%d h %02d min", sign, int(f)/3600, int(f)/60%60)
	default:
		return fmt.Sprintf("%s%.0f days", sign, f/86400)
	}
}

// typed is a deadline as a person can type it.
func typed(s task.Seconds) string { return s.Duration().String() }

// tone says how a task with this float fares; relative is its deadline from its
// start, seconds.
func tone(float, relative float64) Tone {
	switch {
	case math.IsInf(float, 1) || math.IsNaN(float):
		return Plain
	case float < 0:
		return Late
	case float < relative/4:
		return Near
	default:
		return OK
	}
}

// spare says in a word what a float means.
func spare(t Tone, over bool) string {
	switch {
	case t == Plain:
		return "no deadline"
	case t == Late && over:
		return "missed"
	case t == Late:
		return "late"
	case over:
		return "hit"
	case t == Near:
		return "left, soon due"
	default:
		return "left"
	}
}

func clock(t time.Time) string { return t.Format("15:04:05.000") }

// when is a clock time, with the day if that is not today's.
func when(t, now time.Time) string {
	if t.Format(time.DateOnly) != now.Format(time.DateOnly) {
		return t.Format("2 Jan 15:04:05")
	}
	return t.Format("15:04:05")
}

// percent is a coordinate.
func percent(x float64) string {
	return strings.TrimSuffix(strings.TrimRight(strconv.FormatFloat(x, 'f', 2, 64), "0"), ".") + "%"
}

// meter is a share, 0–1; bad says that being full is a trouble.
func meter(share float64, bad bool) Meter {
	if math.IsNaN(share) || math.IsInf(share, 0) {
		return Meter{Text: "not known"}
	}
	share = min(max(share, 0), 1)
	return Meter{Known: true, Percent: percent(100 * share), Text: fmt.Sprintf("%.0f %%", 100*share), Full: bad && share >= 0.95}
}

// axis is the text of a tick.
func axis(ahead time.Duration) string {
	sign := "+"
	if ahead < 0 {
		sign, ahead = "−", -ahead
	}
	switch {
	case ahead == 0:
		return "now"
	case ahead%time.Minute == 0:
		return fmt.Sprintf("%s%d min", sign, ahead/time.Minute)
	case ahead > time.Minute:
		return fmt.Sprintf("%s%d:%02d", sign, ahead/time.Minute, ahead%time.Minute/time.Second)
	default:
		return fmt.Sprintf("%s%d s", sign, ahead/time.Second)
	}
}

// short shortens a GPU's UUID.
func short(uuid string) string {
	if len(uuid) > 12 {
		return uuid[:12] + "…"
	}
	return uuid
}

func plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return strconv.Itoa(n) + " " + many
}

// gpuOf is what people call a GPU of a node; the beginning of its UUID where nobody told its index,
// or where instances of one card share it.
func gpuOf(n placement.Node, uuid string) string {
	byIndex, index := map[int]int{}, -1
	for _, g := range n.GPUs {
		byIndex[g.Index]++
		if g.UUID == uuid {
			index = g.Index
		}
	}
	if index < 0 || byIndex[index] > 1 {
		return short(uuid)
	}
	return fmt.Sprintf("GPU %d", index)
}
