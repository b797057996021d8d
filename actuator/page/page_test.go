package page

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/laxity/laxity/actuator/decision"
	"github.com/laxity/laxity/actuator/page/timeline"
	"github.com/laxity/laxity/actuator/page/view"
	"github.com/laxity/laxity/actuator/placement"
	"github.com/laxity/laxity/exporter/task"
	"github.com/laxity/laxity/internal/access"
)

var update = flag.Bool("update", false, "write the golden files")

var t0 = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func at(seconds float64) time.Time { return t0.Add(time.Duration(seconds * float64(time.Second))) }

const (
	gpuA, gpuB = "GPU-aaaaaaaa-0000-0000-0000-000000000000", "GPU-bbbbbbbb-0000-0000-0000-000000000000"
	hostile    = `<script>alert("x")</script>'"&`
)

func aTask(id, container string, start, deadline float64, state task.State) task.Task {
	t := task.Task{ID: id, PID: 42, Container: container, ContainerID: "id-" + container, GPUs: []string{gpuA}, State: state,
		Start: task.Mark{Time: at(start)}, StateSince: at(start)}
	if deadline != 0 {
		t.Deadline = at(deadline)
	}
	return t
}

func ended(t task.Task, end float64) task.Task {
	t.State, t.End = task.Ended, &task.Mark{Time: at(end)}
	return t
}

// scene is what a lively node looks like at t0.
func scene() view.Facts {
	held := aTask("3", "held", -20, 4, task.Held)
	held.StateSince = at(-12)
	paused := aTask("4", "paused", -50, 30, task.Paused)
	paused.StateSince, paused.HeldSeconds = at(-30), 1.5
	swapped := aTask("5", "swapped", -100, 200, task.Swapped)
	swapped.StateSince = at(-60)
	s := &task.Snapshot{
		Sequence: 7, Time: t0, Node: "n1", Health: task.Health{DeviceUp: true, EngineUp: true},
		GPUs: []task.GPU{
			{UUID: gpuA, Index: 0, Name: "H200", MemoryTotal: 141 << 30, MemoryUsed: 137 << 30, Utilization: 1},
			{UUID: gpuB, Index: 1, Name: hostile, MemoryTotal: 141 << 30, Utilization: 0.25},
		},
		Tasks: []task.Task{swapped, paused, aTask("6", hostile, -40, -5, task.Running), held, aTask("2", "web", -15, 10, task.Running), aTask("7", "batch", -10, 0, task.Running)},
		Ended: []task.Task{ended(aTask("1", "web", -60, -30, ""), -50), ended(aTask("0", "web", -90, -80, ""), -70)},
	}
	f := view.Facts{
		Window: 5 * time.Minute, Changes: true, Snapshot: s, Standings: map[string]view.Standing{},
		Service: view.Service{Node: "n1", Ready: true, Policy: "edf", Share: "adaptive", Arbitrate: "auto", GuardianUp: true, Inbox: 1},
		GPUs: map[string]view.Arbitration{gpuA: {Open: true, Admitted: []string{"web", hostile}, Queue: []string{"held", "paused"}},
			gpuB: {Open: true, Order: []string{hostile, "batch"}}},
		Decisions: []decision.Decision{
			{Sequence: 1, Time: at(-30), Kind: decision.Pause, Result: decision.Done, Reason: "waits behind web on " + gpuA, Container: "paused", GPUs: []string{gpuA}},
			{Sequence: 2, Time: at(-20), Kind: decision.Unpause, Result: decision.Failed, Reason: "first in order", Error: "engine: " + hostile, Container: "web"},
			{Sequence: 3, Time: at(-2), Kind: decision.Request, Result: decision.Opened, Reason: "to be paused", By: hostile, Container: hostile},
		},
		Ranking: placement.Overview{Known: true, Method: "paper", Nodes: placement.Ranking{
			{Node: placement.Node{Name: "n2", MemoryFree: 80 << 30, Float: 12.5, GPUs: []placement.GPU{{UUID: gpuB, Reserved: 1 << 30}}}, GPU: gpuB},
			{Node: placement.Node{Name: hostile, Float: -1}, Reasons: []placement.Reason{{Code: placement.Busy, GPU: gpuA, Text: "the GPU is used to 100 %"}}},
		}, Reservations: []placement.Reservation{{ID: "p1", Node: "n2", GPU: gpuB, State: "assumed", Memory: 1 << 30, Deadline: 9, Expires: at(60)}}},
	}
	for _, name := range []string{"web", "held", "paused", "swapped", "batch", hostile, "idle", "never", "other"} {
		c := task.Container{ID: "id-" + name, Name: name, Image: "img", Spec: task.Spec{Managed: name != "other", Deadline: 25, Class: task.ClassDeadline}}
		if name == "batch" {
			c.Spec.Deadline, c.Spec.Class = 0, task.ClassBatch
		}
		c.Spec.NeverPause = name == "never"
		s.Containers = append(s.Containers, c)
		f.Standings[c.ID] = view.Standing{Managed: c.Spec.Managed}
	}
	f.Standings["id-held"] = view.Standing{Managed: true, Ours: true, Waits: "waits for web on " + gpuA, Until: at(600)}
	f.Standings["id-batch"] = view.Standing{Managed: true, Off: true, Order: "off the GPU for 40 ms: requests of " + hostile + " come first"}
	f.Standings["id-paused"] = view.Standing{Managed: true, Ours: true, Waits: "alice asks for it", Until: at(500), Asked: "alice"}
	f.Standings["id-swapped"] = view.Standing{Managed: true, Somebody: true}
	return f
}

// stage is a page about a scene that a test can change.
type stage struct {
	*Page
	mu     sync.Mutex
	facts  view.Facts
	now    time.Time
	who    string // who looks; empty: who may not act
	asked  []string
	refuse error
	full   bool // strangers have all streams that they may have
	reads  atomic.Int64
}

func newStage(t testing.TB) *stage {
	t.Helper()
	s := &stage{facts: scene(), now: t0, who: "alice"}
	p, err := New(Options{
		Facts: func() view.Facts { s.reads.Add(1); s.mu.Lock(); defer s.mu.Unlock(); return s.facts },
		Gate:  s, Actor: actor{s},
		Ranking: func(context.Context) placement.Overview { s.mu.Lock(); defer s.mu.Unlock(); return s.facts.Ranking },
		Now:     func() time.Time { s.mu.Lock(); defer s.mu.Unlock(); return s.now },
	})
	if err != nil {
		t.Fatal(err)
	}
	s.Page = p
	p.history.Observe(s.facts.Snapshot)
	return s
}

func (s *stage) serve(t testing.TB) *httptest.Server {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); s.Run(ctx) }()
	server := httptest.NewServer(s.Router())
	t.Cleanup(func() { cancel(); <-done; server.Close() })
	return server
}

// change changes the scene, as a snapshot does.
func (s *stage) change(f func()) {
	s.mu.Lock()
	f()
	s.mu.Unlock()
	s.Changed()
}

func (s *stage) act(what, who, container string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = append(s.asked, what+" "+container+" by "+who)
	return s.refuse
}

// actor is the stage as the page's Actor.
type actor struct{ *stage }

func (s actor) Pause(_ context.Context, who, c string) error   { return s.act("pause", who, c) }
func (s actor) Release(_ context.Context, who, c string) error { return s.act("release", who, c) }
func (s actor) Change(_ context.Context, who, c string, change task.Change) error {
	text, err := json.Marshal(change)
	return errors.Join(err, s.act(string(text), who, c))
}

func (s *stage) Who(*http.Request) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return cmp.Or(s.who, "token holder")
}

// Check lets those who type the password act, too.
func (s *stage) Check(r *http.Request) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, password, _ := r.BasicAuth(); s.who == "" && password != "right" {
		return access.ErrDenied
	}
	return nil
}

// Stream lets those in who may act.
func (s *stage) Stream(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.full && s.Check(r) != nil {
			http.Error(w, "too many watch", http.StatusServiceUnavailable)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func (s *stage) Change(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := s.Check(r); err != nil {
			w.Header().Set("WWW-Authenticate", "Basic")
			http.Error(w, err.Error(), http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func (s *stage) done() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.asked, ", ")
}

// The whole page, as it was reads at and found right. Nothing of what others name
// gets out of its place.
func TestGolden(t *testing.T) {
	s := newStage(t)
	server := s.serve(t)
	for name, who := range map[string]string{"acts": hostile, "reads": ""} {
		s.who = who
		got := fetch(t, server.URL+"/")
		got = strings.ReplaceAll(got, s.version, "VERSION")
		if strings.Contains(got, "<script>alert") || strings.Contains(got, `"x")`) {
			t.Error("a name got out of its place")
		}
		path := filepath.Join("testdata", name+".golden.html")
		if *update {
			if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if got != string(want) {
			t.Errorf("the page is not what %s says; look at it, then go test -update. First difference:\n%s", path, firstDifference(got, string(want)))
		}
		if acts := strings.Contains(got, "<button"); acts != (who != "") {
			t.Errorf("%q looks, and buttons: %v", who, acts)
		}
	}
}

func firstDifference(got, want string) string {
	g, w := strings.Split(got, "\n"), strings.Split(want, "\n")
	for i := range g {
		if i >= len(w) || g[i] != w[i] {
			return fmt.Sprintf("line %d\ngot  %s\nwant %s", i+1, g[i], w[min(i, len(w)-1)])
		}
	}
	return "it is shorter"
}

func fetch(t testing.TB, address string) string {
	t.Helper()
	resp, err := http.Get(address)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s %v %s", address, resp.Status, err, raw)
	}
	for _, header := range []string{"Content-Security-Policy", "X-Content-Type-Options", "Referrer-Policy"} {
		if resp.Header.Get(header) == "" {
			t.Errorf("%s: no %s", address, header)
		}
	}
	return string(raw)
}

// Nothing in the page needs what its Content-Security-Policy forbids, or comes from
// elsewhere; identifiers are there once; what is labelled exists.
func TestMarkup(t *testing.T) {
	s := newStage(t)
	html := fetch(t, s.serve(t).URL+"/")
	for _, bad := range []string{` style=`, ` onclick=`, `<style`, `javascript:`, `http://`, `https://`, `src="//`, `href="//`} {
		if strings.Contains(html, bad) {
			t.Errorf("the page contains %s", bad)
		}
	}
	seen := map[string]bool{}
	for _, m := range regexp.MustCompile(` id="([^"]+)"`).FindAllStringSubmatch(html, -1) {
		if seen[m[1]] {
			t.Errorf("id %s twice", m[1])
		}
		seen[m[1]] = true
	}
	for _, m := range regexp.MustCompile(`(?:aria-labelledby="|url\(#|href="#)([^")]+)`).FindAllStringSubmatch(html, -1) {
		if !seen[m[1]] {
			t.Errorf("nothing has the id %s", m[1])
		}
	}
	level := 0
	for _, m := range regexp.MustCompile(`<h([1-6])`).FindAllStringSubmatch(html, -1) {
		n := int(m[1][0] - '0')
		if n > level+1 {
			t.Errorf("a heading of level %d follows one of level %d", n, level)
		}
		level = n
	}
	for _, css := range []string{"page.css"} {
		raw, _ := files.ReadFile("assets/" + css)
		if bytes.Contains(raw, []byte("url(")) || bytes.Contains(raw, []byte("@import")) {
			t.Errorf("%s loads something", css)
		}
	}
}

func TestActions(t *testing.T) {
	form := func(kv ...string) url.Values {
		v := url.Values{}
		for i := 0; i+1 < len(kv); i += 2 {
			v.Set(kv[i], kv[i+1])
		}
		return v
	}
	for name, c := range map[string]struct {
		path, accept string
		form         url.Values
		stranger     bool
		dry          bool
		refuse       error
		code         int
		asked, said  string
	}{
		"pause":              {path: "pause", form: form("container", "id-web"), code: 200, asked: "pause id-web by alice"},
		"release":            {path: "release", form: form("container", "id-web"), code: 200, asked: "release id-web by alice"},
		"deadline":           {path: "change", form: form("container", "x", "deadline", " 9s "), code: 200, asked: `{"deadline":"9s"} x by alice`},
		"share":              {path: "change", form: form("container", "x", "share", "30%"), code: 200, asked: `{"share":"30%"} x by alice`},
		"both":               {path: "change", form: form("container", "x", "share", "", "deadline", "9s"), code: 200, asked: `{"deadline":"9s","share":null} x by alice`, said: "The deadline is now 9s. The share is now the label's."},
		"a dry run":          {path: "change", dry: true, form: form("container", "x", "share", "30%"), code: 200, asked: `{"share":"30%"} x by alice`, said: "The share would be 30%. Nothing was changed: this is a dry run."},
		"no share":           {path: "change", form: form("container", "x", "share", "30"), code: 409, said: "is not a share"},
		"neither":            {path: "change", form: form("container", "x"), code: 409, said: "send a deadline or a share"},
		"label's deadline":   {path: "change", form: form("container", "x", "deadline", ""), code: 200, asked: `{"deadline":null} x by alice`},
		"no deadline":        {path: "change", form: form("container", "x", "deadline", "soon"), code: 409, said: "is not a deadline"},
		"no script":          {path: "pause", accept: "text/html", form: form("container", "x"), code: 303, asked: "pause x by alice"},
		"refused":            {path: "pause", refuse: fmt.Errorf("because of %s", hostile), form: form("container", "x"), code: 409, asked: "pause x by alice", said: "Failed: because of " + hostile},
		"refused, no script": {path: "pause", accept: "text/html", refuse: fmt.Errorf("because of %s", hostile), form: form("container", "x"), code: 409, asked: "pause x by alice", said: "because of &lt;script&gt;"},
		"may not pause":      {path: "pause", stranger: true, form: form("container", "x"), code: 401, said: "a token is needed"},
		"may not release":    {path: "release", stranger: true, form: form("container", "x"), code: 401},
		"may not set":        {path: "change", stranger: true, form: form("container", "x", "deadline", "9s"), code: 401},
		"too large":          {path: "pause", form: form("container", strings.Repeat("x", 5000)), code: 400},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t)
			if s.refuse = c.refuse; c.stranger {
				s.who = ""
			}
			s.facts.Service.DryRun = c.dry
			r := httptest.NewRequest(http.MethodPost, "/actions/"+c.path, strings.NewReader(c.form.Encode()))
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			r.Header.Set("Accept", c.accept)
			w := httptest.NewRecorder()
			s.Router().ServeHTTP(w, r)
			if w.Code != c.code || s.done() != c.asked || !strings.Contains(w.Body.String(), c.said) {
				t.Errorf("%d, asked %q, said %s", w.Code, s.done(), w.Body)
			}
		})
	}
}

// events reads a stream; each call of next returns what the sections then say.
type events struct {
	t    testing.TB
	body *bufReader
	stop context.CancelFunc
}

type bufReader struct {
	io.Reader
	rest []byte
}

func (b *bufReader) line() (string, error) {
	for {
		if i := bytes.IndexByte(b.rest, '\n'); i >= 0 {
			line := string(b.rest[:i])
			b.rest = b.rest[i+1:]
			return line, nil
		}
		chunk := make([]byte, 64<<10)
		n, err := b.Read(chunk)
		b.rest = append(b.rest, chunk[:n]...)
		if n == 0 && err != nil {
			return "", err
		}
	}
}

func listen(t testing.TB, address string) *events {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req) //nolint:bodyclose // e.stop closes it
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") != "text/event-stream" {
		t.Fatalf("%s %s", resp.Status, resp.Header)
	}
	e := &events{t: t, body: &bufReader{Reader: resp.Body}, stop: func() { cancel(); _ = resp.Body.Close() }}
	t.Cleanup(e.stop)
	return e
}

func (e *events) next() map[string]string {
	e.t.Helper()
	kind := ""
	for {
		line, err := e.body.line()
		if err != nil {
			e.t.Fatal(err)
		}
		if v, ok := strings.CutPrefix(line, "event: "); ok {
			kind = v
		}
		if v, ok := strings.CutPrefix(line, "data: "); ok && kind == "sections" {
			var s map[string]string
			if err := json.Unmarshal([]byte(v), &s); err != nil {
				e.t.Fatal(err)
			}
			return s
		}
	}
}

// First come all sections, then those alone that changed; nobody looks, nothing is
// rendered; many who look cost as much as one.
func TestEvents(t *testing.T) {
	s := newStage(t)
	server := s.serve(t)
	fetch(t, server.URL+"/") // so that the ranking is known
	e := listen(t, server.URL+"/events?window=1m")
	if all := e.next(); len(all) != len(sections)+1 || all["latest"] == "" || !strings.Contains(all["containers"], "web") {
		t.Errorf("first %d sections", len(all))
	}
	s.change(func() { s.facts.Service.Drained = true })
	if d := e.next(); len(d) != 1 || !strings.Contains(d["status"], "drained") {
		t.Errorf("then %v", d)
	}
	begun := s.reads.Load()
	var many []*events
	for range 50 {
		m := listen(t, server.URL+"/events?window=1m")
		m.next()
		many = append(many, m)
	}
	s.change(func() { s.facts.Service.Drained = false })
	for _, m := range append(many, e) {
		if d := m.next(); len(d) != 1 || strings.Contains(d["status"], "drained") {
			t.Errorf("one of many: %v", d)
		}
	}
	// Without sharing it would have been 50 more at least.
	if n := s.reads.Load() - begun; n > 40 {
		t.Errorf("rendered %d times for 51 readers of one change", n)
	}
	for _, m := range append(many, e) {
		m.stop()
	}
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		s.hub.mu.Lock()
		left := s.hub.readers + len(s.hub.shows)
		s.hub.mu.Unlock()
		if left == 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d are left", left)
		}
	}
}

// The server's limits for a request do not end a stream.
func TestEventsOutliveTheRequest(t *testing.T) {
	s := newStage(t)
	server := httptest.NewUnstartedServer(s.Router())
	const limit = 2 * time.Second // a busy machine reads and answers a request in less
	server.Config.ReadTimeout, server.Config.WriteTimeout = limit, limit
	server.Start()
	defer server.Close()
	e := listen(t, server.URL+"/events?window=1m")
	defer e.stop()
	for begun := time.Now(); time.Since(begun) < limit*5/4; {
		e.next()
		s.change(func() { s.facts.Service.Inbox++ })
	}
	e.next()
}

// However often something changes, it is rendered a few times a second.
func TestCoalesced(t *testing.T) {
	var rendered atomic.Int64
	h := newHub(func(variant) map[string]string { return map[string]string{"n": fmt.Sprint(rendered.Add(1))} })
	s, leave, _ := h.join(variant{})
	defer leave()
	begun := time.Now()
	for time.Since(begun) < time.Second {
		h.changed()
		_, next := s.latest()
		select {
		case <-next:
		case <-time.After(time.Millisecond):
		}
	}
	if n := float64(rendered.Load()); n > 2+time.Since(begun).Seconds()/soonest.Seconds() {
		t.Errorf("%v renderings in %v", n, time.Since(begun))
	}
}

func TestReadersAreBounded(t *testing.T) {
	h := newHub(func(variant) map[string]string { return map[string]string{} })
	var leaves []func()
	for range maxReaders {
		_, leave, ok := h.join(variant{})
		if !ok {
			t.Fatal("refused too early")
		}
		leaves = append(leaves, leave)
	}
	if _, _, ok := h.join(variant{}); ok {
		t.Error("one too many was let in")
	}
	leaves[0]()
	_, leave, ok := h.join(variant{})
	if !ok {
		t.Fatal("refused though one left")
	}
	leave()
	for _, leave := range leaves[1:] {
		leave()
	}
}

// stuck is a connection to somebody who reads nothing.
type stuck struct {
	http.ResponseWriter
	wrote chan struct{}
}

func (s *stuck) Write([]byte) (int, error) {
	select {
	case <-s.wrote:
	default:
		close(s.wrote)
	}
	return 0, os.ErrDeadlineExceeded // what a write says when its time is over
}

// Strangers who watch do not keep out who may act.
func TestEventsOfStrangersAreBounded(t *testing.T) {
	s := newStage(t)
	s.full = true
	server := s.serve(t)
	e := listen(t, server.URL+"/events")
	e.next()
	e.stop()
	s.mu.Lock()
	s.who = ""
	s.mu.Unlock()
	resp, err := http.Get(server.URL + "/events")
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("a stranger: %s", resp.Status)
	}
}

func TestSlowReaderIsDropped(t *testing.T) {
	s := newStage(t)
	w := &stuck{httptest.NewRecorder(), make(chan struct{})}
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.serveEvents(w, httptest.NewRequest(http.MethodGet, "/events", nil))
	}()
	<-done
	<-w.wrote
	if s.hub.readers != 0 {
		t.Error("it still counts")
	}
}

// The page that is reloaded shows the window that was asked for.
func TestWindow(t *testing.T) {
	for text, want := range map[string]time.Duration{"1m": time.Minute, "15m": 15 * time.Minute, "": view.DefaultWindow, "2m": view.DefaultWindow, "-1h": view.DefaultWindow, "x": view.DefaultWindow} {
		if got := window(text); got != want {
			t.Errorf("%q: %v", text, got)
		}
	}
}

// What snapshots say is remembered, and shown.
func TestObserve(t *testing.T) {
	s := newStage(t)
	server := s.serve(t)
	snap := *s.facts.Snapshot
	snap.Sequence++
	snap.Tasks = append(slices.Clone(snap.Tasks), aTask("new", "newcomer", -1, 5, task.Running))
	e := listen(t, server.URL+"/events?window=5m")
	e.next()
	s.Observe(&snap)
	for !strings.Contains(e.next()["gpus"], "newcomer") {
	}
	if got := s.history.Since(at(-1)); !slices.ContainsFunc(got, func(e timeline.Entry) bool { return e.ID == "new" }) {
		t.Error("not remembered")
	}
}
