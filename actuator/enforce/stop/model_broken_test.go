package stop

import (
	"testing"
)

var (
	oneThread = world{name: "one thread that calls once", calls: [threads]uint8{1, 0}, deaths: true, late: true, opened: true, sendFails: true}
	twice     = world{name: "one thread that calls twice", calls: [threads]uint8{2, 0}, late: true}
	both      = world{name: "two threads", calls: [threads]uint8{1, 1}, sleeps: true}
	bothLate  = world{name: "two threads, and time runs out", calls: [threads]uint8{1, 1}, late: true}
	others    = world{name: "somebody else's signals", calls: [threads]uint8{1, 0}, late: true, opened: true, stops: 2, conts: 1}
	killed    = world{name: "SIGKILL, and the PID is used again", calls: [threads]uint8{1, 0}, deaths: true, late: true, opened: true, kills: 1}
)

// Each way to weaken the protocol breaks a rule. So the model can find what it is for.
func TestWeakerProtocolBreaksARule(t *testing.T) {
	for _, c := range []struct {
		name string
		variant
		world
		rule
	}{
		{"a hold is decided about before it is Stopped", variant{onePhase: true}, oneThread, forever},
		{"the thread does not look again", variant{noRecheck: true}, twice, again},
		{"forgotten before SIGCONT", variant{forgetFirst: true}, oneThread, forever},
		{"SIGCONT before the mark", variant{continueFirst: true}, oneThread, forever},
		{"a second sender", variant{secondSender: true}, bothLate, forever},
		{"no lease", variant{noLease: true}, oneThread, forever},
		{"swept while another hold is wanted", variant{endsAmongWanted: true}, bothLate, undecided},
		{"one decision for all holds", variant{oneIsEnough: true}, both, undecided},
		{"start times are not compared", variant{noStartTime: true}, killed, touched},
		{"forgotten before the thread has looked", variant{recordedForgotten: true}, oneThread, forever},
		{"forgotten before the thread has looked, record", variant{recordedForgotten: true}, oneThread, unlisted},
		{"a list of what is forgotten", variant{tornList: true}, twice, undecided},
		{"a list from before the look", variant{listBeforeLook: true}, both, undecided},
		{"threads are read once", variant{lookOnce: true}, both, undecided},
		{"what late steps leave is not tidied up", variant{neverTidied: true}, twice, kept},
		{"a mark is written once more", variant{releasedAgain: true}, twice, backwards},
		{"a pending SIGSTOP is ignored", variant{pendingIgnored: true}, others, lost},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := explore(c.world, c.variant, c.rule)
			if e.finding == nil {
				t.Fatalf("in %d states nothing breaks the rule: %s", e.states, c.rule)
			}
			t.Logf("after %d states: %s", e.states, e.finding)
		})
	}
}
