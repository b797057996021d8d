package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/laxity/laxity/actuator/decision"
	"github.com/laxity/laxity/actuator/plan"
	"github.com/laxity/laxity/actuator/record"
	"github.com/laxity/laxity/actuator/state"
)

// fakeActuator answers as one that holds trainer-b for trainer-a.
func fakeActuator(t *testing.T) string {
	t.Helper()
	id := strings.Repeat("b", 64)
	s := state.State{
		GPUs: []state.GPU{{UUID: "GPU-1", Admitted: []string{"trainer-a"}, Queue: []string{"trainer-b"}},
			{UUID: "GPU-2", Order: []string{"web", "second", "third"}}, {UUID: "GPU-3", Unkept: "shares add up to 115 %"}},
		NoChannels: "the self-test failed",
		Containers: []state.Container{
			{ID: strings.Repeat("a", 64), Name: "trainer-a", Managed: true, Tasks: 1, Standing: plan.Runs, DeadlineUnknown: true},
			{ID: id, Name: "trainer-b", Managed: true, Tasks: 1, Standing: plan.Ours, Waits: "waits for trainer-a on GPU-1"},
			{ID: strings.Repeat("c", 64), Name: "trainer-c", Managed: true, Tasks: 1, Standing: plan.Ours, Waits: "alert Hot asks for it",
				MemoryAsked: "--memory-share=fair divides the card"},
			{ID: strings.Repeat("d", 64), Name: "trainer-d", Managed: true, Tasks: 1, Standing: plan.Runs, DeadlineUnmet: "it needs 3.2s of GPU time before its deadline in 2s; 1.1s is free beside web"},
			{ID: strings.Repeat("f", 64), Name: "second", Managed: true, Tasks: 1, Standing: plan.Runs, Order: "second in the queue, slice 100 ms", SliceSeconds: 0.1},
			{ID: strings.Repeat("9", 64), Name: "third", Managed: true, Tasks: 1, Standing: plan.Runs, Off: true,
				Order: "off the GPU for 40 ms: requests of web come first, and it is the turn of second"},
			{ID: strings.Repeat("8", 64), Name: "web", Managed: true, Standing: plan.Runs, Order: "its requests come first, slice 1 s"},
			{ID: strings.Repeat("e", 64), Name: "server", Managed: true, Tasks: 1, Standing: plan.Runs, Beside: "requests are not held"},
			{ID: strings.Repeat("7", 64), Name: "rank-0", Managed: true, Gang: "job", Tasks: 1, Standing: plan.Runs, Order: "left as it is: it is of the gang job"},
			{ID: strings.Repeat("6", 64), Name: "rank-1", Managed: true, Gang: "job", Tasks: 1, Standing: plan.Runs},
			{ID: strings.Repeat("5", 64), Name: "team/pod/rank-1", Managed: true, Gang: "job", Tasks: 1, Standing: plan.Runs},
		},
		Holds: []record.Hold{{ContainerID: id, Container: "trainer-b", Since: time.Now().Add(-time.Second), Until: time.Now().Add(time.Minute)}},
	}
	all := []decision.Decision{{Kind: decision.Pause, Result: decision.Done, Container: "trainer-b", ContainerID: id, Reason: "waits for trainer-a on GPU-1", Time: time.Now()}}
	mux := http.NewServeMux()
	mux.HandleFunc("/api/v1/state", func(w http.ResponseWriter, _ *http.Request) { _ = json.NewEncoder(w).Encode(s) })
	mux.HandleFunc("/api/v1/decisions", func(w http.ResponseWriter, r *http.Request) {
		out := []decision.Decision{}
		for _, d := range all {
			if d.About(r.URL.Query().Get("container")) {
				out = append(out, d)
			}
		}
		_ = json.NewEncoder(w).Encode(out)
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return "--actuator.url=" + server.URL
}

func TestWhy(t *testing.T) {
	address := fakeActuator(t)
	for _, ref := range []string{"trainer-b", strings.Repeat("b", 12)} {
		code, out, stderr := laxity("why", address, ref)
		if code != 0 {
			t.Fatal(code, stderr)
		}
		for _, want := range []string{"trainer-b waits for trainer-a on GPU-1\n", "number 1 of 1 in the queue for GPU-1, where trainer-a may compute", "pause", "done",
			"containers that wait are paused, a running kernel is not stopped, and GPU time is not divided by share, because channels cannot be controlled here: the self-test failed\n"} {
			if !strings.Contains(out, want) {
				t.Errorf("%q is missing in\n%s", want, out)
			}
		}
	}
	code, out, _ := laxity("why", "--json", address, "trainer-b")
	var e explanation
	if err := json.Unmarshal([]byte(out), &e); code != 0 || err != nil || len(e.Decisions) != 1 || e.Hold == nil {
		t.Errorf("%d %v\n%s", code, err, out)
	}
}

func TestWhyInALine(t *testing.T) {
	address := fakeActuator(t)
	for container, want := range map[string]string{
		"trainer-a": "trainer-a runs: it is in turn on GPU-1\n",
		"trainer-c": "trainer-c waits: alert Hot asks for it\n",
		"second":    "second runs: second in the queue, slice 100 ms\n  queue of GPU-2, the first one first: web, second, third\n",
		"third":     "third is held: off the GPU for 40 ms: requests of web come first, and it is the turn of second\n  queue of GPU-2, the first one first: web, second, third",
		"web":       "web runs: its requests come first, slice 1 s\n",
		"server":    "server runs beside those whose turn it is: requests are not held\n",
		"rank-0":    "rank-0 runs: left as it is: it is of the gang job\n  it is of the gang job, with rank-1 (laxity.gang)\n",
		"trainer-d": "trainer-d runs: nobody contends for its GPU, or it is in a host phase\n",
	} {
		if code, out, stderr := laxity("why", address, container); code != 0 || !strings.HasPrefix(out, want) {
			t.Errorf("%d %s\n%s", code, stderr, out)
		}
	}
}

func TestWhyADeadlineCannotBeMet(t *testing.T) {
	address := fakeActuator(t)
	for container, want := range map[string]string{
		"trainer-d": "  its deadline cannot be promised, by its history and by what was there when it started: it needs 3.2s of GPU time before its deadline in 2s; 1.1s is free beside web\n",
		"trainer-a": "  whether its deadline can be met is not known: too little of its image and command has ended here\n",
		"web":       "  on GPU-3: shares add up to 115 %\n",
	} {
		if _, out, _ := laxity("why", address, container); !strings.Contains(out, want) || strings.Count(out, "deadline can") != strings.Count(want, "deadline can") {
			t.Errorf("%s", out)
		}
	}
}

// Who is asked about its allocations without a limit of its own reads why.
func TestWhyAllocationsAreAskedAbout(t *testing.T) {
	address := fakeActuator(t)
	for container, want := range map[string]bool{"trainer-c": true, "trainer-b": false} {
		_, out, _ := laxity("why", address, container)
		if strings.Contains(out, "allocations of GPU memory may wait or be refused: --memory-share=fair divides the card\n") != want {
			t.Errorf("%s\n%s", container, out)
		}
	}
}

func TestWhyOfAStranger(t *testing.T) {
	code, _, stderr := laxity("why", fakeActuator(t), "nobody")
	if code != 1 || !strings.Contains(stderr, "laxity ps --all") {
		t.Errorf("%d %s", code, stderr)
	}
	code, _, stderr = laxity("why", "--actuator.url=http://127.0.0.1:1", "x")
	if code != 1 || !strings.Contains(stderr, "no actuator answers at") {
		t.Errorf("%d %s", code, stderr)
	}
}

// What repeats is one line; what is in between is not lost.
func TestWhyRepeats(t *testing.T) {
	began := time.Date(2026, 11, 23, 12, 0, 0, 0, time.Local)
	var all []decision.Decision
	for i, why := range []string{"its task has ended", "its task has ended", "its task has ended", "its deadline was changed", "its task has ended"} {
		all = append(all, decision.Decision{Kind: decision.Lease, Result: decision.Closed, Alert: "GPUContention", Reason: why, Time: began.Add(time.Duration(i) * time.Second)})
	}
	var got []string
	for _, line := range decisionLines(all, func(text string) string { return text }) {
		got = append(got, line[0]+" "+line[3])
	}
	want := []string{
		"12:00:02.000 GPUContention its task has ended (3 times since 12:00:00)",
		"12:00:03.000 GPUContention its deadline was changed",
		"12:00:04.000 GPUContention its task has ended",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
