package actuator_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/laxity/laxity/actuator"
	"github.com/laxity/laxity/actuator/arbiter"
	"github.com/laxity/laxity/actuator/decision"
	"github.com/laxity/laxity/actuator/source"
	"github.com/laxity/laxity/actuator/webhook"
	"github.com/laxity/laxity/exporter/task"
	"github.com/laxity/laxity/internal/access"
	"github.com/laxity/laxity/internal/chromium"
)

const alice = "alice"

// requested waits for a decision about a person's request.
func (b *bench) requested(result decision.Result, reason string) decision.Decision {
	b.Helper()
	return b.decided("a request, "+reason, func(d decision.Decision) bool {
		return d.Kind == decision.Request && d.Result == result && d.By == alice && strings.Contains(d.Reason, reason)
	})
}

func (b *bench) must(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

func TestPersonPausesAndLetsGo(t *testing.T) {
	b := newBench(t, nil)
	b.run("a", "b")
	b.await("the snapshot is there", func() bool { return b.State().SnapshotSequence >= 2 })
	b.must(b.Pause(t.Context(), alice, "a"))
	b.awaitPaused("a", "a", "b")
	if d := b.requested(decision.Opened, "to be paused"); d.Container != "name-a" || d.ContainerID != "a" {
		t.Errorf("%+v", d)
	}
	b.decided("why", func(d decision.Decision) bool {
		return d.Kind == decision.Pause && d.Reason == "alice asks for it" && d.Cause == "pause"
	})
	// Again it is only renewed; released, it runs.
	b.must(b.Pause(t.Context(), alice, "name-a"))
	b.requested(decision.Renewed, "to be paused")
	b.must(b.Release(t.Context(), alice, "a"))
	b.awaitPaused("", "a", "b")
	b.requested(decision.Done, "released")
	b.await("no lease is left", func() bool { return len(b.State().Leases) == 0 })
	if err := b.Release(t.Context(), alice, "b"); err == nil || !strings.Contains(err.Error(), "not kept from computing") {
		t.Errorf("releasing what runs: %v", err)
	}
	// Who changes their mind is obeyed though the tasks are the same. That it runs is known from the facts.
	b.source.set(func() {})
	b.seen()
	b.must(b.Pause(t.Context(), alice, "a"))
	b.awaitPaused("a", "a", "b")
}

// What a person releases is not held again for its present tasks, whoever asks.
func TestPersonLetsGoWhatTheActuatorHolds(t *testing.T) {
	b := newBench(t, nil)
	b.run("a", "b")
	b.send(contention(webhook.Firing), alert(webhook.Firing, "User", "pause", "container", "name-b"))
	b.awaitPaused("b", "a", "b")
	b.await("it shows", func() bool { return len(b.State().Holds) == 1 })
	b.must(b.Release(t.Context(), alice, "b"))
	b.awaitPaused("", "a", "b")
	n := len(b.engine.Calls())
	b.source.set(func() {})
	b.await("seen", func() bool { return b.State().SnapshotSequence >= b.source.seq })
	if got := b.engine.Calls(); len(got) != n {
		t.Errorf("acted again: %v", got)
	}
	if e := b.State().Exemptions; len(e) != 1 || e[0].Reason != "alice released it" {
		t.Errorf("exemptions: %+v", e)
	}
}

// The contract of holding is kept: a person's pause ends by --max-hold, survives
// a restart, and spares those that must not be held.
func TestPersonsPauseIsALease(t *testing.T) {
	var now clock
	b := newBench(t, func(o *actuator.Options) {
		o.Config.MaxHold = time.Minute
		o.Now = now.now
	})
	b.run("a")
	b.await("the snapshot is there", func() bool { return b.State().SnapshotSequence >= 1 })
	b.must(b.Pause(t.Context(), alice, "a"))
	b.awaitPaused("a", "a")
	now.set(time.Minute)
	b.awaitPaused("", "a")
	b.decided("the lease closes", func(d decision.Decision) bool {
		return d.Kind == decision.Lease && d.By == alice && strings.Contains(d.Reason, "as long as is allowed")
	})

	b = newBench(t, nil)
	b.run("a")
	b.await("the snapshot is there", func() bool { return b.State().SnapshotSequence >= 1 })
	b.must(b.Pause(t.Context(), alice, "a"))
	b.awaitPaused("a", "a")
	b.must(b.stop())
	b.awaitPaused("", "a")
	b.restart(nil)
	b.awaitPaused("a", "a")
}

func TestPersonIsRefused(t *testing.T) {
	b := newBench(t, nil)
	b.run("a", "plain", "never", "others")
	b.engine.SetPaused("others", true)
	b.source.set(func() {
		b.source.containers[1].Spec.Managed = false
		b.source.containers[2].Spec.NeverPause = true
	})
	b.await("seen", func() bool { return b.State().SnapshotSequence >= b.source.seq })
	for id, want := range map[string]string{"plain": "only observed", "never": "laxity.pause=never", "others": "not by Laxity", "nobody": "no running container", "": "no label"} {
		if err := b.Pause(t.Context(), alice, id); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("pausing %q: %v", id, err)
		}
	}
	for id, want := range map[string]string{"others": "docker unpause name-others", "nobody": "no running container"} {
		if err := b.Release(t.Context(), alice, id); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("releasing %q: %v", id, err)
		}
	}
	if err := b.Change(t.Context(), alice, "a", due(time.Second)); !errors.Is(err, arbiter.ErrNoChanges) {
		t.Errorf("a deadline: %v", err)
	}
	b.source.set(func() { b.source.health.DeviceUp = false })
	b.await("trouble", func() bool { return b.State().Trouble != "" })
	if err := b.Pause(t.Context(), alice, "a"); err == nil || !strings.Contains(err.Error(), "without fresh facts") {
		t.Errorf("without facts: %v", err)
	}
	if got := b.engine.Calls(); len(got) != 0 {
		t.Errorf("calls: %v", got)
	}
}

// changer is a source that can change settings.
type changer struct {
	*fakeSource
	change func(id string, c task.Change) error
}

func (s changer) Change(_ context.Context, id string, c task.Change) error { return s.change(id, c) }

var _ source.Changer = changer{}

func due(d time.Duration) task.Change { return task.Change{Deadline: &d} }

func share(of float64) task.Change { return task.Change{Share: &of} }

func TestPersonChangesSettings(t *testing.T) {
	got := map[string]task.Change{}
	var refuse error
	b := newBench(t, func(o *actuator.Options) {
		o.Source = changer{b0(o), func(id string, c task.Change) error { got[id] = c; return refuse }}
	})
	b.run("a", "plain")
	b.source.set(func() { b.source.containers[0].Spec.Deadline = 9; b.source.containers[1].Spec.Managed = false })
	b.await("seen", func() bool { return b.State().SnapshotSequence >= b.source.seq })
	b.must(b.Change(t.Context(), alice, "a", due(5*time.Second)))
	b.requested(decision.Done, "deadline 5s, was 9s")
	b.must(b.Change(t.Context(), alice, "a", due(0)))
	b.requested(decision.Done, "back to its label's, was 9s")
	if *got["a"].Deadline != 0 || len(got) != 1 {
		t.Errorf("set: %v", got)
	}
	b.must(b.Change(t.Context(), alice, "a", share(0.3)))
	b.requested(decision.Done, "share 30%, was none")
	if c := got["a"]; c.Deadline != nil || *c.Share != 0.3 {
		t.Errorf("set: %+v", c)
	}
	if err := b.Change(t.Context(), alice, "plain", due(time.Second)); err == nil || !strings.Contains(err.Error(), "only observed") {
		t.Errorf("of one without labels: %v", err)
	}
	refuse = errors.New("the disk is full")
	if err := b.Change(t.Context(), alice, "a", due(time.Minute)); !errors.Is(err, refuse) {
		t.Errorf("refused: %v", err)
	}
	if d := b.requested(decision.Failed, "deadline 1m0s"); d.Error != "the disk is full" {
		t.Errorf("%+v", d)
	}
}

// b0 is the source that the bench has put into the options.
func b0(o *actuator.Options) *fakeSource { return o.Source.(*fakeSource) }

func TestChangeByHTTP(t *testing.T) {
	var asked string
	exporter := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		raw := make([]byte, 100)
		n, _ := r.Body.Read(raw)
		asked = r.Method + " " + r.URL.EscapedPath() + " " + string(raw[:n])
		if strings.Contains(r.URL.Path, "refuse") {
			w.WriteHeader(http.StatusForbidden)
			_, _ = w.Write([]byte(`{"error":"not from here","hint":"call it there"}`))
		}
		if strings.Contains(r.URL.Path, "broken") {
			w.WriteHeader(http.StatusBadGateway)
		}
	}))
	defer exporter.Close()
	h, err := source.NewHTTP(exporter.URL+"/", nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		id         string
		change     task.Change
		want, fail string
	}{
		{"abc", due(1500 * time.Millisecond), `PATCH /api/v1/containers/abc {"deadline":"1.5s"}`, ""},
		{"abc", share(0.125), `PATCH /api/v1/containers/abc {"share":"12.5%"}`, ""},
		{"a/../b?", due(0), `PATCH /api/v1/containers/a%2F..%2Fb%3F {"deadline":null}`, ""},
		{"refuse", due(time.Second), `PATCH /api/v1/containers/refuse {"deadline":"1s"}`, "the exporter refuses: not from here; call it there"},
		{"broken", due(time.Second), `PATCH /api/v1/containers/broken {"deadline":"1s"}`, "exporter answers 502 Bad Gateway"},
	} {
		err := h.Change(t.Context(), c.id, c.change)
		if asked != c.want || (err == nil) != (c.fail == "") || err != nil && err.Error() != c.fail {
			t.Errorf("%s: asked %s, %v", c.id, asked, err)
		}
	}
}

// Who may act: with tokens those who have one, where the web server authenticates
// everybody, and else a browser on this machine that asked for this machine.
func TestWhoMayAct(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens")
	if err := os.WriteFile(path, []byte("0123456789abcdef"), 0o600); err != nil {
		t.Fatal(err)
	}
	tokens, err := access.OpenTokens(path)
	if err != nil {
		t.Fatal(err)
	}
	web := filepath.Join(t.TempDir(), "web.yml")
	if err := os.WriteFile(web, []byte("basic_auth_users: {alice: hash}"), 0o600); err != nil {
		t.Fatal(err)
	}
	passwords, err := access.OpenWebConfig(web)
	if err != nil {
		t.Fatal(err)
	}
	type client struct{ remote, host, origin, site, forwarded, authorization string }
	const typed = "Basic YW55Ym9keTowMTIzNDU2Nzg5YWJjZGVm" // anybody:0123456789abcdef
	here := client{remote: "127.0.0.1:5", host: "localhost:9871", origin: "http://localhost:9871", site: "same-origin"}
	change := func(c client, f func(*client)) client { f(&c); return c }
	for name, c := range map[string]struct {
		options func(*actuator.Options)
		client  client
		code    int
	}{
		"here":              {nil, here, 409}, // let through, and then there is no such container
		"here, by address":  {nil, change(here, func(c *client) { c.host, c.origin = "127.0.0.1:9871", "http://127.0.0.1:9871" }), 409},
		"here, by IPv6":     {nil, change(here, func(c *client) { c.remote, c.host, c.origin = "[::1]:5", "[::1]:9871", "http://[::1]:9871" }), 409},
		"elsewhere":         {nil, change(here, func(c *client) { c.remote = "192.0.2.1:5" }), 403},
		"DNS rebinding":     {nil, change(here, func(c *client) { c.host, c.origin = "evil.example:9871", "http://evil.example:9871" }), 421},
		"through a proxy":   {nil, change(here, func(c *client) { c.forwarded = "192.0.2.1" }), 403},
		"another site":      {nil, change(here, func(c *client) { c.origin, c.site = "http://evil.example", "cross-site" }), 403},
		"another port":      {nil, change(here, func(c *client) { c.origin, c.site = "http://localhost:80", "same-site" }), 403},
		"token":             {func(o *actuator.Options) { o.Access.Tokens = tokens }, change(here, func(c *client) { c.authorization = "Bearer 0123456789abcdef" }), 409},
		"token in browser":  {func(o *actuator.Options) { o.Access.Tokens = tokens }, change(here, func(c *client) { c.authorization = typed }), 409},
		"token, other site": {func(o *actuator.Options) { o.Access.Tokens = tokens }, change(here, func(c *client) { c.authorization, c.origin, c.site = typed, "https://evil.example", "cross-site" }), 403},
		"no token":          {func(o *actuator.Options) { o.Access.Tokens = tokens }, here, 401},
		"password":          {func(o *actuator.Options) { o.Access.Web = passwords }, client{remote: "192.0.2.1:5", host: "gpu-1:9871", origin: "https://gpu-1:9871"}, 409},
		"password, foreign": {func(o *actuator.Options) { o.Access.Web = passwords }, client{remote: "192.0.2.1:5", host: "gpu-1:9871", origin: "https://evil.example"}, 403},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, c.options)
			b.run("a")
			b.await("the snapshot is there", func() bool { return b.State().SnapshotSequence >= 1 })
			post := func(path, body string) int {
				r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(body))
				r.RemoteAddr, r.Host = c.client.remote, c.client.host
				r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
				for k, v := range map[string]string{"Origin": c.client.origin, "Sec-Fetch-Site": c.client.site, "X-Forwarded-For": c.client.forwarded, "Authorization": c.client.authorization} {
					if v != "" {
						r.Header.Set(k, v)
					}
				}
				w := httptest.NewRecorder()
				b.Handler().ServeHTTP(w, r)
				return w.Code
			}
			if code := post("/actions/pause", "container=nobody"); code != c.code {
				t.Errorf("a form: %d, want %d", code, c.code)
			}
			// The API lets nobody through whom the page does not.
			if code := post("/api/v1/alerts", `{"version":"4","alerts":[]}`); (code == 200) != (c.code == 409) {
				t.Errorf("an alert: %d", code)
			}
		})
	}
}

// Whoever asks by a name that is not known here, reading or writing, is refused: a
// web page can have its own name point to this machine.
func TestOtherNamesAreRefused(t *testing.T) {
	b := newBench(t, func(o *actuator.Options) { o.Access.Hosts = []string{"actuator.internal"} })
	for host, want := range map[string]int{"actuator.internal:9871": http.StatusOK, "evil.example:9871": http.StatusMisdirectedRequest} {
		for _, ask := range []string{"POST /api/v1/alerts", "GET /api/v1/state", "GET /api/v1/decisions", "GET /", "GET /events?", "GET /metrics"} {
			if want == http.StatusOK && strings.HasPrefix(ask, "GET /events") {
				continue // goes on for ever
			}
			method, path, _ := strings.Cut(ask, " ")
			r := httptest.NewRequest(method, path, strings.NewReader(`{"version":"4","alerts":[]}`))
			r.RemoteAddr, r.Host = "127.0.0.1:5", host
			w := httptest.NewRecorder()
			if b.Handler().ServeHTTP(w, r); w.Code != want {
				t.Errorf("%s by the name %s: %d %s", ask, host, w.Code, w.Body)
			}
		}
	}
}

// In a real browser: sign in with a token, pause a container, see it paused, let
// it go. What the page does is what the engine did.
func TestPageActs(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a browser")
	}
	browser := chromium.Start(t)
	path := filepath.Join(t.TempDir(), "tokens")
	if err := os.WriteFile(path, []byte("0123456789abcdef"), 0o600); err != nil {
		t.Fatal(err)
	}
	tokens, err := access.OpenTokens(path)
	if err != nil {
		t.Fatal(err)
	}
	b := newBench(t, func(o *actuator.Options) { o.Access.Tokens = tokens })
	b.run("a", "b")
	server := httptest.NewServer(b.Handler())
	t.Cleanup(server.Close)
	p := browser.Open(server.URL+"/", chromium.Look{User: "anybody", Password: "0123456789abcdef"})
	t.Cleanup(func() { p.Go("about:blank") })
	do := func(what string) {
		t.Helper()
		_, err := chromium.Eval[chromedp.Void](p, what)
		b.must(err)
	}
	await := func(what string) {
		t.Helper()
		b.must(p.Await(what))
	}
	await(`document.getElementById("containers").textContent.includes("name-a")`)
	p.WhileLoading(func() { do(`[...document.links].find((a) => a.textContent === "Sign in").click()`) })
	const button = `document.querySelector("[aria-label='%']")`
	await(strings.Replace(button, "%", "Pause name-a", 1))
	do(strings.Replace(button, "%", "Pause name-a", 1) + ".click()")
	b.awaitPaused("a", "a", "b")
	await(strings.Replace(button, "%", "Release name-a", 1))
	await(`document.getElementById("decisions").textContent.includes("asked by token holder")`)
	do(strings.Replace(button, "%", "Release name-a", 1) + ".click()")
	b.awaitPaused("", "a", "b")
	await(`document.getElementById("containers").querySelector("tr[data-key=a] .state").textContent === "running"`)
	for _, problem := range p.Problems() {
		if !strings.Contains(problem, "status of 401") { // it was asked who it is
			t.Errorf("the browser says: %s", problem)
		}
	}
	for _, address := range p.Requests() {
		if u, err := url.Parse(address); err != nil || "http://"+u.Host != server.URL && address != "about:blank" {
			t.Errorf("it asked for %s", address)
		}
	}
}
