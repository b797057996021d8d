// Package event describes what happens on a node in a person's words: a task began, was held, ended
// in time or missed its deadline. It compares snapshots, and adds decisions.
//
// Pure: it imports the standard library and pure packages only.
package event

import (
	"time"

	"github.com/laxity/laxity/actuator/decision"
)

// Kind is what happened.
type Kind string

// The kinds.
const (
	Began    Kind = "began"    // a task
	Held     Kind = "held"     // a task, for the first time: held, paused or swapped
	Resumed  Kind = "resumed"  // it computes again, for the first time
	Hit      Kind = "hit"      // a task ended in time
	Missed   Kind = "missed"   // a task ended after its deadline
	Ended    Kind = "ended"    // a task without a deadline
	Lost     Kind = "lost"     // nobody saw a task end
	Requests Kind = "requests" // the requests of a server in the last seconds
	Asked    Kind = "asked"    // what a person asked for
	Memory   Kind = "memory"   // GPU memory was denied, or a container was swapped
	Trouble  Kind = "trouble"  // something failed
	Service  Kind = "service"  // about Laxity itself
)

// Event is one thing that happened.
type Event struct {
	Time time.Time `json:"time"`
	Kind Kind      `json:"kind"`
	// Container is its name; empty where it is about no container.
	Container string `json:"container,omitempty"`
	// Text is a sentence without its subject, the container.
	Text string `json:"text"`
}

// Decided converts a decision for a person; false for those that only programs need, and for holds,
// which snapshots report.
func Decided(d decision.Decision) (Event, bool) {
	e := Event{Time: d.Time, Container: d.Container, Text: d.Reason}
	switch d.Kind {
	case decision.Request:
		e.Kind = Asked
		if d.By != "" {
			e.Text = d.By + " asked: " + e.Text
		}
	case decision.Memory:
		if d.Result != decision.Denied {
			return e, false
		}
		e.Kind = Memory
	case decision.SwapOut, decision.SwapIn:
		e.Kind = Memory
		e.Text = map[decision.Kind]string{decision.SwapOut: "swapped out: ", decision.SwapIn: "swapped in: "}[d.Kind] + e.Text
	case decision.Service:
		e.Kind = Service
	default:
		if d.Result != decision.Failed {
			return e, false
		}
		e.Text = string(d.Kind) + " failed: " + e.Text
	}
	switch {
	case d.Error != "":
		e.Kind = Trouble
		e.Text += ": " + d.Error
	case d.Result == decision.DryRun:
		e.Text += " (dry run: nothing was done)"
	case d.Result == decision.Failed:
		e.Kind = Trouble
	}
	return e, true
}
