package view

import (
	"fmt"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/laxity/laxity/actuator/state"
	"github.com/laxity/laxity/exporter/task"
)

// Order is a container's place in the queue for GPU, if slices divide its time, from the actuator;
// else empty.
type Order struct {
	// Rank is its place in the queue, from 1. Slice is its time slice, 0 its own. Off: it is off the
	// GPU. Reason says all that in words.
	Rank   int          `json:"rank,omitempty"`
	Slice  task.Seconds `json:"slice_seconds,omitempty"`
	Off    bool         `json:"off,omitempty"`
	Reason string       `json:"order_reason,omitempty"`
	// first is the first in the queue.
	first string
}

// AddState adds an actuator's facts about their containers to the rows.
func AddState(rows []Row, s state.State) {
	AddMemory(rows, s.Containers)
	addAdmission(rows, s.Containers)
	for i := range rows {
		r := &rows[i]
		c := slices.IndexFunc(s.Containers, func(c state.Container) bool { return c.ID == r.ContainerID })
		g := slices.IndexFunc(s.GPUs, func(g state.GPU) bool { return g.UUID == r.GPU })
		if c < 0 || g < 0 {
			continue
		}
		line := s.GPUs[g].Order
		if r.Rank = 1 + slices.Index(line, r.Container); r.Rank == 0 {
			continue
		}
		is := s.Containers[c]
		r.Slice, r.Off, r.Reason, r.first = task.Seconds(is.SliceSeconds), is.Off, is.Order, line[0]
		if r.Off && r.State == string(task.Running) {
			r.State = string(task.Held) // the snapshot may be older
		}
	}
}

// order is the row's place, in few letters: 2nd 100ms; or, while it is off the GPU, which container
// comes before it.
func (r Row) order() string {
	switch {
	case r.Rank == 0:
		return ""
	case r.Off && r.first != r.Container:
		return "off: " + shortened(r.first, 11)
	case r.Off:
		return "off"
	case r.Slice == 0:
		return ordinal(r.Rank)
	default:
		return ordinal(r.Rank) + " " + brief(r.Slice.Duration())
	}
}

func orderStyle(r Row) Style {
	if r.Off {
		return Yellow
	}
	return Plain
}

func ordinal(n int) string {
	suffix := "th"
	if n/10%10 != 1 {
		switch n % 10 {
		case 1:
			suffix = "st"
		case 2:
			suffix = "nd"
		case 3:
			suffix = "rd"
		}
	}
	return fmt.Sprint(n, suffix)
}

// brief formats a time slice with three digits: 10s, 100ms, 2.05ms, 100µs.
func brief(d time.Duration) string {
	switch {
	case d >= time.Second:
		return fmt.Sprintf("%.3gs", d.Seconds())
	case d >= time.Millisecond:
		return fmt.Sprintf("%.3gms", float64(d)/float64(time.Millisecond))
	default:
		return fmt.Sprintf("%dµs", d.Microseconds())
	}
}

func shortened(s string, most int) string {
	if utf8.RuneCountInString(s) <= most {
		return s
	}
	return string([]rune(s)[:most-1]) + "…"
}
