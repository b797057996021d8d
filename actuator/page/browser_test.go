package page

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/cdproto/accessibility"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/laxity/laxity/exporter/task"
	"github.com/laxity/laxity/internal/chromium"
)

// The page in a real browser. With LAXITY_SHOTS=FOLDER pictures of it are left
// there, to look at.
func TestBrowser(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a browser")
	}
	b := chromium.Start(t)
	for name, test := range map[string]func(*testing.T, *chromium.Browser){
		"live": live, "still": still, "without script": withoutScript, "looks": looks, "keyboard": keyboard, "names": names, "acts": acts, "comes back": comesBack,
	} {
		t.Run(name, func(t *testing.T) { test(t, b) })
	}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func eval[T any](t *testing.T, p *chromium.Page, expression string) (v T) {
	t.Helper()
	v, err := chromium.Eval[T](p, expression)
	check(t, err)
	return v
}

func do(t *testing.T, p *chromium.Page, expression string) {
	t.Helper()
	eval[chromedp.Void](t, p, expression)
}

func await(t *testing.T, p *chromium.Page, expression string) {
	t.Helper()
	check(t, p.Await(expression))
}

// ours fails the test if the page asked anything of another host, or if the
// browser found fault with it.
func ours(t *testing.T, p *chromium.Page, base string) {
	t.Helper()
	for _, r := range p.Requests() {
		if !strings.HasPrefix(r, base+"/") {
			t.Errorf("it asked for %s", r)
		}
	}
	for _, problem := range p.Problems() {
		t.Errorf("the browser says: %s", problem)
	}
}

// What changes arrives without a reload and without disturbing who uses the page:
// the element, its focus, what is typed and what is open stay.
func live(t *testing.T, b *chromium.Browser) {
	s := newStage(t)
	server := s.serve(t)
	p := b.Open(server.URL+"/?window=1m", chromium.Look{})
	await(t, p, `document.getElementById("link").textContent === "Live"`)
	do(t, p, `
		window.same = "not reloaded";
		document.querySelector("#gpus details").open = true;
		const input = document.querySelector("#containers input[name=deadline]");
		window.input = input; window.row = input.closest("tr").getAttribute("data-key");
		input.focus(); input.value = "12s"`)
	s.change(func() {
		snap := *s.facts.Snapshot
		snap.Containers = append([]task.Container{{ID: "id-0", Name: "a-newcomer", Spec: task.Spec{Managed: true}}}, snap.Containers...)
		snap.Tasks = append([]task.Task{aTask("9", "a-newcomer", -1, 1, task.Running)}, snap.Tasks...)
		snap.Tasks[0].ContainerID = "id-0"
		s.facts.Snapshot = &snap
		s.facts.Service.Drained = true
		s.facts.Decisions = slices.Clone(s.facts.Decisions) // the old ones are being read
		s.facts.Decisions[2].Reason = "read this aloud"
	})
	await(t, p, `document.getElementById("containers").textContent.includes("a-newcomer")`)
	await(t, p, `document.getElementById("status").textContent.includes("drained")`)
	await(t, p, `document.querySelector("[role=log]").textContent.includes("read this aloud")`)
	if got := eval[string](t, p, `[window.same, document.activeElement === window.input && document.contains(window.input), window.input.value,
		window.input.closest("tr").getAttribute("data-key") === window.row, document.querySelector("#gpus details").open].join()`); got != "not reloaded,true,12s,true,true" {
		t.Errorf("after the update: %s", got)
	}
	// Time goes on by itself.
	before := eval[string](t, p, `document.querySelector(".lane .open .run:last-of-type, .lane .open .run").getAttribute("x")`)
	s.change(func() { s.now = s.now.Add(5 * time.Second) })
	await(t, p, fmt.Sprintf(`document.querySelector(".lane .open .run:last-of-type, .lane .open .run").getAttribute("x") !== %q`, before))
	// What the browser made of the updates is what the server would send now.
	same := eval[bool](t, p, `fetch("/?window=1m").then((r) => r.text()).then((html) => {
		const fresh = new DOMParser().parseFromString(html, "text/html");
		fresh.querySelector("#gpus details").open = true;
		return ["status", "gpus", "containers", "decisions"].every((id) => fresh.getElementById(id).isEqualNode(document.getElementById(id)));
	})`)
	if !same {
		t.Error("the updated page is not what a new one would be")
	}
	ours(t, p, server.URL)
}

func still(t *testing.T, b *chromium.Browser) {
	s := newStage(t)
	server := s.serve(t)
	p := b.Open(server.URL+"/?still=1", chromium.Look{})
	if n := eval[int](t, p, `document.scripts.length + document.querySelectorAll("meta[http-equiv]").length`); n != 0 {
		t.Error("it would move")
	}
	for _, r := range p.Requests() {
		if strings.Contains(r, "/events") {
			t.Error("it listens")
		}
	}
	p.WhileLoading(func() {
		do(t, p, `[...document.links].find((a) => a.textContent === "Resume live updates").click()`)
	})
	await(t, p, `document.getElementById("link").textContent === "Live"`)
}

// loaded evaluates an expression when the page, which reloads itself, is loaded. A reload in between takes the answer
// away, so it asks again.
func loaded[T any](t *testing.T, p *chromium.Page, expression string) (v T) {
	t.Helper()
	whole := `(() => { if (document.readyState !== "complete") throw Error("it loads"); return ` + expression + ` })()`
	var err error
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if v, err = chromium.Eval[T](p, whole); err == nil {
			return v
		}
	}
	t.Fatal(err)
	return v
}

// Without JavaScript everything is there, reloads itself, and acts.
func withoutScript(t *testing.T, b *chromium.Browser) {
	s := newStage(t)
	server := s.serve(t)
	p := b.Open(server.URL+"/", chromium.Look{NoScript: true})
	if got := loaded[string](t, p, `document.querySelector("noscript meta, meta[http-equiv=refresh]")?.content ?? document.querySelector("noscript").textContent`); !strings.Contains(got, "5") {
		t.Errorf("it does not reload itself: %q", got)
	}
	if n := loaded[int](t, p, `document.querySelectorAll("svg.lane g.bar").length`); n < 8 {
		t.Errorf("%d bars", n)
	}
	s.change(func() { s.facts.Service.Drained = true })
	drained := func() bool {
		return loaded[bool](t, p, `document.getElementById("status").textContent.includes("drained")`)
	}
	for deadline := time.Now().Add(time.Minute); !drained(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it does not reload itself, or shows what was")
		}
	}
	p.Go(server.URL + "/?still=1")
	p.WhileLoading(func() {
		do(t, p, `document.querySelector("button[aria-label='Pause web']").click()`)
	})
	if got := eval[string](t, p, `location.pathname + document.querySelector("[role=status]").textContent`); !strings.HasPrefix(got, "/Pause requested") || s.done() != "pause id-web by alice" {
		t.Errorf("%q, asked %q", got, s.done())
	}
	s.refuse = fmt.Errorf("the guardian is away")
	p.Go(server.URL + "/?still=1")
	p.WhileLoading(func() {
		do(t, p, `document.querySelector("button[aria-label='Pause web']").click()`)
	})
	if got := eval[string](t, p, `document.querySelector("[role=alert]").textContent + getComputedStyle(document.querySelector("main")).maxWidth`); !strings.Contains(got, "guardian is away") || strings.Contains(got, "none") {
		t.Errorf("refused: %q", got)
	}
	p.WhileLoading(func() { do(t, p, `document.links[0].click()`) })
	if got := eval[string](t, p, `location.pathname`); got != "/" {
		t.Errorf("back leads to %s", got)
	}
}

// Light, dark, and on a phone; what does not fit a small screen is not cut off.
func looks(t *testing.T, b *chromium.Browser) {
	s := newStage(t)
	s.facts.Standings["id-web"] = s.facts.Standings["id-held"]
	server := s.serve(t)
	brightness := `(() => { const c = getComputedStyle(document.body).backgroundColor.match(/\d+/g).map(Number); return (c[0] + c[1] + c[2]) / 3 })()`
	for name, look := range map[string]chromium.Look{
		"light": {}, "dark": {Dark: true}, "phone": {Width: 360, Height: 740, Mobile: true}, "phone-dark": {Width: 360, Height: 740, Mobile: true, Dark: true}, "wide": {Width: 2200, Height: 1200},
	} {
		p := b.Open(server.URL+"/?window=1m", look)
		await(t, p, `document.documentElement.dataset.updates > 0`)
		if bright := eval[float64](t, p, brightness); (bright < 128) != look.Dark {
			t.Errorf("%s: brightness %v", name, bright)
		}
		if over := eval[[]string](t, p, `[...document.querySelectorAll("body, body *")].filter((e) => !e.closest("svg, .unseen, .stack thead") && e.getBoundingClientRect().right > innerWidth + 1).map((e) => e.outerHTML.slice(0, 80))`); len(over) > 0 {
			t.Errorf("%s: wider than the screen: %v", name, over)
		}
		if w := eval[int](t, p, `document.documentElement.scrollWidth - innerWidth`); w > 0 {
			t.Errorf("%s: scrolls sideways by %d", name, w)
		}
		if folder := os.Getenv("LAXITY_SHOTS"); folder != "" {
			check(t, p.Screenshot(filepath.Join(folder, name+".png")))
		}
		ours(t, p, server.URL)
	}
}

// Everything can be reached and used by keyboard, and one sees where one is.
func keyboard(t *testing.T, b *chromium.Browser) {
	s := newStage(t)
	p := b.Open(s.serve(t).URL+"/?window=1m", chromium.Look{})
	await(t, p, `document.getElementById("link").textContent === "Live"`)
	const where = `(() => { const e = document.activeElement; return e.getAttribute("aria-label") || e.textContent })()`
	check(t, chromium.Do(p, chromedp.KeyEvent(kb.Tab)))
	if got := eval[string](t, p, where+` + document.activeElement.getBoundingClientRect().top`); !strings.HasPrefix(got, "Skip") || strings.Contains(got, "-") {
		t.Errorf("first comes %q", got)
	}
	want := eval[int](t, p, `document.querySelectorAll("a, button, input:not([type=hidden]), summary").length`)
	reached := map[string]bool{}
	for range want + 2 {
		got := eval[string](t, p, where)
		if visible := eval[bool](t, p, `document.activeElement === document.body || (() => { const s = getComputedStyle(document.activeElement); return s.outlineStyle !== "none" && parseFloat(s.outlineWidth) >= 2 })()`); !visible {
			t.Errorf("one does not see that one is at %q", got)
		}
		if got == "Pause web" {
			check(t, chromium.Do(p, chromedp.KeyEvent(kb.Enter)))
			await(t, p, `document.getElementById("answer").textContent.includes("requested")`)
		}
		reached[got] = true
		check(t, chromium.Do(p, chromedp.KeyEvent(kb.Tab)))
	}
	for _, must := range []string{"1 min", "Pause live updates", "The same as a table", "Pause web", "Release held", "Deadline of web, empty for the label", "Set the deadline of web", "Share of web, empty for the label", "rank for another container"} {
		if !reached[must] {
			t.Errorf("%q is not reached by keyboard", must)
		}
	}
	if s.done() != "pause id-web by alice" {
		t.Errorf("asked %q", s.done())
	}
}

// names looks at what the browser tells assistive technology: whatever can be
// used, and each picture and table, has a name; what is decoration is not there.
func names(t *testing.T, b *chromium.Browser) {
	s := newStage(t)
	p := b.Open(s.serve(t).URL+"/?still=1", chromium.Look{Width: 360, Height: 740, Mobile: true})
	tree, err := chromium.Run(p, func(ctx context.Context, t *chromedp.Target) ([]*accessibility.Node, error) {
		r, err := cdp.Call(ctx, t, accessibility.GetFullAXTree, accessibility.GetFullAXTreeParams{})
		return r.Nodes, err
	})
	check(t, err)
	count := map[string]int{}
	for _, n := range tree {
		text := func(v *accessibility.Value) (s string) {
			if v != nil {
				_ = json.Unmarshal(v.Value, &s)
			}
			return s
		}
		role, name := text(n.Role), text(n.Name)
		if n.Ignored {
			continue
		}
		count[role]++
		switch role {
		case "button", "link", "textbox", "image", "img", "table", "region", "navigation", "heading", "columnheader", "rowheader", "log":
			if strings.TrimSpace(name) == "" {
				t.Errorf("a %s has no name", role)
			}
		}
	}
	// A table that looks like a list on a phone is a table still.
	for role, least := range map[string]int{"button": 10, "table": 3, "rowheader": 5, "region": 5, "navigation": 1, "main": 1, "banner": 1, "contentinfo": 1, "status": 1, "log": 1, "textbox": 3} {
		if count[role] < least {
			t.Errorf("%d × %s, want %d at least: %v", count[role], role, least, count)
		}
	}
}

// The browser asks for the password; then a form tells in place what became of it.
func acts(t *testing.T, b *chromium.Browser) {
	s := newStage(t)
	s.who = ""
	server := s.serve(t)
	signIn := func(password string) *chromium.Page {
		p := b.Open(server.URL+"/", chromium.Look{User: "anybody", Password: password})
		if n := eval[int](t, p, `document.querySelectorAll("main button, main form").length`); n != 0 {
			t.Errorf("%d buttons for one who may not act", n)
		}
		p.WhileLoading(func() { do(t, p, `[...document.links].find((a) => a.textContent === "Sign in").click()`) })
		return p
	}
	if got := eval[string](t, signIn("wrong"), `document.body.textContent`); !strings.Contains(got, "a token is needed") {
		t.Errorf("wrong password: %q", got)
	}
	p := signIn("right")
	await(t, p, `document.getElementById("link").textContent === "Live"`)
	do(t, p, `{
		const f = document.querySelector("[aria-label='Set the deadline of web']").form;
		f.deadline.value = "1m30s"; f.requestSubmit();
	}`)
	await(t, p, `document.getElementById("answer").textContent === "The deadline is now 1m30s."`)
	do(t, p, `{
		const f = document.querySelector("[aria-label='Set the share of web']").form;
		f.share.value = "30%"; f.requestSubmit();
	}`)
	await(t, p, `document.getElementById("answer").textContent === "The share is now 30%."`)
	s.change(func() { s.refuse = fmt.Errorf("no: %s", hostile) })
	do(t, p, `document.querySelector("[aria-label='Release held']").click()`)
	await(t, p, `document.getElementById("answer").className === "answer bad"`)
	if got := eval[string](t, p, `document.getElementById("answer").textContent`); got != "Failed: no: "+hostile {
		t.Errorf("refused: %q", got)
	}
	if s.done() != `{"deadline":"1m30s"} id-web by token holder, {"share":"30%"} id-web by token holder, release id-held by token holder` {
		t.Errorf("asked %q", s.done())
	}
}

// After the server was away the page goes on by itself; if what serves it is
// another version, it loads that.
func comesBack(t *testing.T, b *chromium.Browser) {
	s, other := newStage(t), newStage(t)
	other.version = "another"
	var serving atomic.Value
	serving.Store(s.Router())
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { serving.Load().(http.Handler).ServeHTTP(w, r) }))
	p := b.Open(server.URL+"/?window=1m", chromium.Look{})
	t.Cleanup(func() { p.Go("about:blank"); server.Close() })
	await(t, p, `document.documentElement.dataset.updates > 0`)
	do(t, p, `window.same = true`)
	server.CloseClientConnections()
	s.change(func() { s.facts.Service.Drained = true })
	await(t, p, `document.getElementById("link").textContent === "Live" && document.getElementById("status").textContent.includes("drained")`)
	if !eval[bool](t, p, `window.same === true`) {
		t.Error("it was reloaded though the same still serves there")
	}
	p.WhileLoading(func() {
		serving.Store(other.Router())
		server.CloseClientConnections()
	})
	if got := eval[string](t, p, `document.body.dataset.version`); got != "another" {
		t.Errorf("version %s", got)
	}
}
