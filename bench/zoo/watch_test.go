package zoo

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/laxity/laxity/actuator/record"
	"github.com/laxity/laxity/actuator/state"
	gpu "github.com/laxity/laxity/exporter/task"
)

// brokenEngine cannot even say how a container is.
type brokenEngine struct{ engine }

func (brokenEngine) inspect(context.Context, string) (status, error) {
	return status{}, errors.New("broken")
}

// A container that stands is found once answers of the actuator without a reason cover the patience. Time in which
// the actuator does not answer, which a stall of the machine takes, is no evidence.
func TestWhoStandsWithoutAReasonIsFound(t *testing.T) {
	const second = time.Second
	for name, tt := range map[string]struct {
		answers map[time.Duration]string // the reason given, by the time of the question
		found   bool
	}{
		"no reason ever":               {every(0, 2*second, ""), true},
		"a reason all the time":        {every(0, 4*second, "waits"), false},
		"for less than the patience":   {every(0, second, ""), false},
		"before a reason":              {over(every(0, 3*second, "waits"), every(0, second, "")), false},
		"after a reason":               {over(every(0, second, "waits"), every(second, 3*second, "")), true},
		"nobody answers":               {nil, false},
		"nobody answers for 1.7 s":     {over(every(0, 300*time.Millisecond, "waits"), every(2*second, 4*second, "waits")), false},
		"released after 1.7 s":         {over(every(0, 300*time.Millisecond, "waits"), every(2*second, 2500*time.Millisecond, "")), false},
		"answers late, never a reason": {map[time.Duration]string{second: "", 2 * second: "", 3 * second: ""}, true},
	} {
		w := newWatcher(&laxity{}, nil)
		s := &specimen{id: "1", machine: &machine{engine: brokenEngine{}}, drawn: drawn{labels: map[string]string{gpu.LabelDeadline: "1s"}}}
		began := time.Now()
		for at := time.Duration(0); at < 4*second; at += tick {
			if reason, ok := tt.answers[at]; ok {
				w.answer = answer{at: began.Add(at), by: map[string]string{"1": reason}}
			}
			w.note(s, "frozen", began.Add(at), false)
		}
		if found, _, _ := w.found(); (len(found) > 0) != tt.found {
			t.Errorf("%s: found %v, want %v", name, found, tt.found)
		}
	}
}

// every has the same answer ten times a second.
func every(from, to time.Duration, reason string) map[time.Duration]string {
	all := map[time.Duration]string{}
	for at := from; at < to; at += askEvery {
		all[at] = reason
	}
	return all
}

// over has first's answers, and second's in their place.
func over(first, second map[time.Duration]string) map[time.Duration]string {
	all := maps.Clone(first)
	maps.Copy(all, second)
	return all
}

// Where nobody listens there is no reason; who only takes too long may have one.
func TestReasons(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(state.State{Holds: []record.Hold{{ContainerID: "1", Reason: "late"}}})
	}))
	l := &laxity{acts: strings.TrimPrefix(server.URL, "http://")}
	if by, answered := l.reasons(t.Context()); !answered || by["1"] != "held: late" {
		t.Errorf("%v, %v", by, answered)
	}
	server.Close()
	if by, answered := l.reasons(t.Context()); !answered || len(by) != 0 {
		t.Errorf("nobody listens: %v, %v", by, answered)
	}
	gate := make(chan struct{})
	silent := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-gate }))
	defer silent.Close()
	defer close(gate)
	l = &laxity{acts: strings.TrimPrefix(silent.URL, "http://"), client: http.Client{Timeout: 10 * time.Millisecond}}
	if by, answered := l.reasons(t.Context()); answered {
		t.Errorf("it takes too long: %v", by)
	}
}
