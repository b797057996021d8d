package stop

import (
	"slices"
	"testing"
	"time"
)

func TestHoldIsOverdueWhenNobodyWantsIt(t *testing.T) {
	const at = time.Minute
	for _, c := range []struct {
		name string
		hold Hold
		now  time.Duration
		want bool
	}{
		{"just begun, and nobody has looked", Hold{Phase: Recorded, At: at}, at, false},
		{"nobody has looked for long", Hold{Phase: Recorded, At: at}, at + unseen, true},
		{"stopped, and nobody has looked for long", Hold{Phase: Stopped, At: at}, at + unseen, true},
		{"wanted", Hold{Phase: Stopped, At: at, Lease: at + Lease}, at + unseen, false},
		{"no longer wanted", Hold{Phase: Stopped, At: at, Lease: at + Lease}, at + Lease, true},
		{"a lease shorter than nobody's", Hold{Phase: Stopped, At: at, Lease: at + 1}, at + unseen - 1, false},
		{"being ended", Hold{Phase: Released, At: at, Ending: at + Lease}, at + Lease, false},
		{"being ended, though its lease ran out", Hold{Phase: Released, At: at, Lease: at, Ending: at + Lease}, at + Lease + ending - 1, false},
		{"who ends it did not go on", Hold{Phase: Released, At: at, Ending: at + Lease}, at + Lease + ending, true},
		{"through", Hold{Phase: Continued, At: at}, at + time.Hour, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := c.hold.Overdue(c.now); got != c.want {
				t.Errorf("overdue: %t, want %t", got, c.want)
			}
		})
	}
}

func TestHoldsOfOneProcessEndTogether(t *testing.T) {
	yes, no := Hold{TID: 1, Phase: Stopped}, Hold{TID: 2, Phase: Stopped}
	decided := func(k Key) bool { return k.TID == 1 }
	for _, c := range []struct {
		name    string
		holds   []Hold
		threads Threads
		want    bool
	}{
		{"nobody is held", nil, Threads{}, false},
		{"decided", []Hold{yes}, Threads{Stopped: true}, true},
		{"continued by somebody else, and asleep", []Hold{yes}, Threads{}, true},
		{"a thread runs", []Hold{yes}, Threads{Running: true, Stopped: true}, false},
		{"one is undecided", []Hold{yes, no}, Threads{Stopped: true}, false},
		{"one is not stopped yet", []Hold{yes, {TID: 1, Phase: Recorded}}, Threads{Stopped: true}, false},
		{"one is being ended by somebody else", []Hold{yes, {TID: 2, Phase: Released}}, Threads{Stopped: true}, true},
		{"one is through", []Hold{yes, {TID: 2, Phase: Continued}}, Threads{Stopped: true}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := Ready(c.holds, decided, c.threads); got != c.want {
				t.Errorf("ready: %t, want %t", got, c.want)
			}
		})
	}
}

func TestNoneIsSweptWhileOneIsWanted(t *testing.T) {
	over := func(h Hold) bool { return h.TID > 10 }
	stands, ends := Hold{TID: 1, Phase: Stopped}, Hold{TID: 11, Phase: Stopped}
	released, through := Hold{TID: 12, Phase: Released}, Hold{TID: 2, Phase: Continued}
	for _, c := range []struct {
		name                        string
		holds, wantEnd, wantThrough []Hold
	}{
		{"nobody is held", nil, nil, nil},
		{"all are over", []Hold{ends, released}, []Hold{ends, released}, nil},
		{"one is wanted", []Hold{ends, stands}, nil, nil},
		{"another one is wanted", []Hold{stands, ends}, nil, nil},
		{"one is through", []Hold{through, ends}, []Hold{ends}, []Hold{through}},
		{"one is through, and another one wanted", []Hold{through, stands}, nil, []Hold{through}},
	} {
		t.Run(c.name, func(t *testing.T) {
			end, through := toEnd(c.holds, over)
			if !slices.Equal(end, c.wantEnd) || !slices.Equal(through, c.wantThrough) {
				t.Errorf("end %v and forget %v, want %v and %v", end, through, c.wantEnd, c.wantThrough)
			}
		})
	}
}

func TestHoldIsOnRecordUntilItsThreadHasLooked(t *testing.T) {
	early, later := Hold{TID: 1, Phase: Recorded}, Hold{TID: 2, Phase: Stopped, Sent: true}
	holds := []Hold{early, later}
	if got := sent(holds); !slices.Equal(got, []Hold{later}) {
		t.Errorf("marked and forgotten are %v, want %v", got, []Hold{later})
	}
	if !slices.Equal(holds, []Hold{early, later}) {
		t.Errorf("the list is changed: %v", holds)
	}
}

func TestProcessIsLeftToWhoeverElseStopsIt(t *testing.T) {
	for _, c := range []struct {
		name    string
		pending Pending
		want    []Step
	}{
		{"nobody else", Pending{}, []Step{Release, Inspect, Continue, Mark, Forget}},
		{"somebody else's SIGSTOP waits", Pending{Stop: true}, []Step{Release, Inspect, Mark, Forget}},
		{"it is asked to end", Pending{End: true}, []Step{Release, Inspect, Continue, Mark, Forget}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got []Step
			for step := Release; step != Done; step = step.Next(c.pending) {
				got = append(got, step)
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("steps %v, want %v", got, c.want)
			}
		})
	}
}

func TestPendingSignalsTellOfOthers(t *testing.T) {
	// Bits of signals, from 1: SIGHUP 1, SIGINT 2, SIGQUIT 3, SIGTERM 15, SIGCONT 18, SIGSTOP 19.
	for _, c := range []struct {
		name, status string
		want         Pending
	}{
		{"nothing", "Name:\tx\nSigPnd:\t0000000000000000\nShdPnd:\t0000000000000000\n", Pending{}},
		{"our SIGSTOP, which is for a thread", "SigPnd:\t0000000000040000\nShdPnd:\t0000000000000000\n", Pending{}},
		{"somebody else's SIGSTOP", "SigPnd:\t0000000000000000\nShdPnd:\t0000000000040000\n", Pending{Stop: true}},
		{"both", "SigPnd:\t0000000000040000\nShdPnd:\t0000000000040000\n", Pending{Stop: true}},
		{"SIGCONT and SIGTSTP", "ShdPnd:\t00000000000a0000\n", Pending{}},
		{"SIGTERM", "ShdPnd:\t0000000000004000\n", Pending{End: true}},
		{"SIGINT to a thread", "SigPnd:\t0000000000000002\nShdPnd:\t0000000000000000\n", Pending{End: true}},
		{"SIGHUP", "ShdPnd:\t0000000000000001\n", Pending{End: true}},
		{"SIGQUIT and SIGSTOP", "ShdPnd:\t0000000000040004\n", Pending{Stop: true, End: true}},
		{"blocked and ignored signals", "SigBlk:\t0000000000040000\nSigIgn:\t0000000000004000\nShdPnd:\t0000000000000000\n", Pending{}},
		{"a name that looks like a line", "Name:\tShdPnd:\nSigPnd:\t0000000000000000\n", Pending{}},
		{"no number", "ShdPnd:\tx\n", Pending{}},
		{"nothing at all", "", Pending{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := pending(c.status); got != c.want {
				t.Errorf("%+v, want %+v", got, c.want)
			}
		})
	}
}
