package main

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/laxity/laxity/actuator/decision"
	"github.com/laxity/laxity/actuator/state"
	"github.com/laxity/laxity/cmd/internal/event"
	"github.com/laxity/laxity/cmd/laxity/internal/check"
	"github.com/laxity/laxity/exporter/task"
	"github.com/laxity/laxity/internal/access"
)

func TestPauseAndRelease(t *testing.T) {
	if testing.Short() {
		t.Skip("starts laxity up")
	}
	u := startUp(t)
	for _, command := range []string{"pause", "release"} {
		code, _, stderr := laxity(command, "nosuch", "--actuator.url=http://"+u.actuator, "--token.file="+u.token)
		if code != exitFailure || !strings.Contains(stderr, "nosuch") && !strings.Contains(stderr, "snapshot") && !strings.Contains(stderr, "fresh facts") || strings.Contains(stderr, "Failed:") {
			t.Errorf("%s: code %d, %q; want what the actuator says", command, code, stderr)
		}
		code, _, stderr = laxity(command, "nosuch", "--actuator.url=http://"+u.actuator, "--token.file="+os.DevNull)
		if code != exitFailure || !strings.Contains(stderr, "--token.file") {
			t.Errorf("%s without the token: code %d, %q", command, code, stderr)
		}
		code, _, stderr = laxity(command, "web", "--actuator.url=http://127.0.0.1:1")
		if code != exitFailure || !strings.Contains(stderr, "no actuator answers at") {
			t.Errorf("%s without an actuator: code %d, %q", command, code, stderr)
		}
	}
}

// check tells of a token that the exporter does not take, before laxity deadline is refused.
func TestCheckTellsOfTheToken(t *testing.T) {
	if testing.Short() {
		t.Skip("starts laxity up, and probes the kernel")
	}
	u := startUp(t)
	wrong := filepath.Join(t.TempDir(), "token")
	if err := access.WriteToken(wrong, 0o600); err != nil {
		t.Fatal(err)
	}
	for token, want := range map[string]check.Level{u.token: check.OK, wrong: check.Fail, os.DevNull: check.Warn} {
		_, stdout, stderr := laxity("check", "--device=sim", "--json", "--exporter.url=http://"+u.exporter, "--actuator.url=http://"+u.actuator, "--token.file="+token)
		var all []check.Finding
		if err := json.Unmarshal([]byte(stdout), &all); err != nil {
			t.Fatalf("%v\n%s%s", err, stdout, stderr)
		}
		asked := 0
		for _, f := range all {
			if f.Name == "token" {
				asked++
				if f.Level != want {
					t.Errorf("%s: %+v, want %v", token, f, want)
				}
			}
		}
		if asked != 2 {
			t.Errorf("%s: %d of 2 programs were asked: %s", token, asked, stdout)
		}
	}
}

// eventServer is an exporter and an actuator.
func eventServer(t *testing.T, snapshots <-chan task.Snapshot, decisions <-chan decision.Decision) string {
	t0 := time.Now().Add(-time.Minute)
	past := task.Snapshot{GPUs: []task.GPU{{UUID: "GPU-a"}}, Containers: []task.Container{{ID: "1", Name: "web"}, {ID: "2", Name: "other"}},
		Ended: []task.Task{
			{ID: "x", Container: "web", ContainerID: "1", State: task.Ended, Start: task.Mark{Time: t0}, End: &task.Mark{Time: t0.Add(2 * time.Second)}, Deadline: t0.Add(time.Second)},
			{ID: "y", Container: "other", ContainerID: "2", State: task.Ended, Start: task.Mark{Time: t0}, End: &task.Mark{Time: t0.Add(2 * time.Second)}},
		}}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /api/v1/tasks", func(w http.ResponseWriter, r *http.Request) {
		_ = json.NewEncoder(w).Encode(past)
		for r.URL.Query().Get("watch") != "" {
			_ = http.NewResponseController(w).Flush()
			select {
			case s := <-snapshots:
				_ = json.NewEncoder(w).Encode(s)
			case <-r.Context().Done():
				return
			}
		}
	})
	mux.HandleFunc("GET /api/v1/state", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(state.State{Time: time.Now(), Containers: []state.Container{{ID: "1", Waits: "other comes first on GPU-a"}}})
	})
	mux.HandleFunc("GET /api/v1/decisions", func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("watch") == "" {
			_ = json.NewEncoder(w).Encode([]decision.Decision{{Sequence: 1, Time: t0.Add(time.Second), Kind: decision.Request, Container: "web", By: "ann", Reason: "deadline 1s"}})
			return
		}
		_ = http.NewResponseController(w).Flush()
		for {
			select {
			case d := <-decisions:
				_ = json.NewEncoder(w).Encode(d)
				_ = http.NewResponseController(w).Flush()
			case <-r.Context().Done():
				return
			}
		}
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return server.URL
}

// An actuator decides about several containers at one time, and one that is started again counts anew.
func TestEventsOfOneMoment(t *testing.T) {
	moment := time.Now()
	of := func(n uint64, container string, after time.Duration) decision.Decision {
		return decision.Decision{Sequence: n, Time: moment.Add(after), Kind: decision.Request, Container: container, By: "ann"}
	}
	connections := make(chan []decision.Decision, 2)
	connections <- []decision.Decision{of(8, "a", 0), of(9, "b", 0)}
	connections <- []decision.Decision{of(1, "b", 0), of(2, "c", time.Second), of(3, "d", time.Second)}
	asked := make(chan string, 9)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked <- r.URL.Query().Get("after")
		select {
		case list := <-connections:
			for _, d := range list {
				_ = json.NewEncoder(w).Encode(d)
			}
		default:
			<-r.Context().Done()
		}
	}))
	defer server.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	e := events{cli: &cli{}}
	e.acts.url = server.URL
	found := e.watch(ctx, 7, moment.Add(-time.Second))
	var got []string
	for range 4 {
		select {
		case d := <-found:
			got = append(got, d.Container)
		case <-ctx.Done():
			t.Fatalf("only %v", got)
		}
	}
	if all := strings.Join(got, " "); all != "a b c d" || <-asked != "7" || <-asked != "0" {
		t.Errorf("told of %s", all)
	}
}

func TestEventsOfThePast(t *testing.T) {
	url := eventServer(t, nil, nil)
	code, stdout, stderr := laxity("events", "--exporter.url="+url, "--actuator.url="+url, "--json")
	var got []string
	for line := range strings.Lines(stdout) {
		var e event.Event
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatal(err)
		}
		got = append(got, string(e.Kind)+" "+e.Container)
	}
	if want := "began web, began other, asked web, missed web, ended other"; code != exitOK || strings.Join(got, ", ") != want {
		t.Errorf("code %d, %q, %s", code, got, stderr)
	}
	code, _, _ = laxity("events", "--exporter.url="+url, "--actuator.url=http://127.0.0.1:1", "other")
	if code == exitOK {
		t.Error("an actuator that was named and does not answer is no error")
	}
	code, stdout, stderr = laxity("events", "--exporter.url="+url, "--actuator.url="+url, "nosuch")
	if code != exitFailure || stdout != "" || !strings.Contains(stderr, `no container "nosuch" is known`) {
		t.Errorf("of nobody: code %d, %q, %q", code, stdout, stderr)
	}
	code, stdout, _ = laxity("events", "--exporter.url="+url, "other")
	if code != exitOK || strings.Count(stdout, "\n") != 2 || strings.Contains(stdout, "web") {
		t.Errorf("of one container, without an actuator: code %d\n%s", code, stdout)
	}
}

// A container that nobody knows may start yet.
func TestEventsFollowOfNobody(t *testing.T) {
	url := eventServer(t, nil, nil)
	said, stderr := io.Pipe()
	c := &cli{out: io.Discard, err: stderr}
	e := events{cli: c, exporter: url, container: "nosuch", acts: standingSource{cli: c, url: url}}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- e.print(ctx, true)
		stderr.Close()
	}()
	if line, err := bufio.NewReader(said).ReadString('\n'); err != nil || !strings.Contains(line, `no container "nosuch" is known`) {
		t.Errorf("%q, %v", line, err)
	}
	stop()
	<-done
}

func TestEventsFollow(t *testing.T) {
	snapshots, decisions := make(chan task.Snapshot), make(chan decision.Decision)
	url := eventServer(t, snapshots, decisions)
	s := terminal(t, 120, 40)
	c := &cli{out: s.program, err: s.program}
	e := events{cli: c, exporter: url, acts: standingSource{cli: c, url: url}}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- e.print(ctx, true) }()
	_, at := s.await(0, "missed its deadline")
	now := time.Now()
	snapshots <- task.Snapshot{GPUs: []task.GPU{{UUID: "GPU-a"}}, Containers: []task.Container{{ID: "1", Name: "web"}},
		Tasks: []task.Task{{ID: "z", Container: "web", ContainerID: "1", State: task.Held, Start: task.Mark{Time: now}, Deadline: now.Add(9 * time.Second), StateSince: now}}}
	text, at := s.await(at, "is held: other comes first on GPU 0")
	if !strings.Contains(text, "began a task, due in 9s") {
		t.Errorf("it says %q", text)
	}
	decisions <- decision.Decision{Sequence: 2, Time: now, Kind: decision.Request, Container: "web", By: "bob", Reason: "released"}
	s.await(at, "bob asked: released")
	stop()
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		t.Error("it does not end")
	}
}
