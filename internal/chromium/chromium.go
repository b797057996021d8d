// Package chromium drives a headless Chromium for tests, by its DevTools protocol
// over a pair of pipes: no library, no port.
package chromium

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/laxity/laxity/internal/needtest"
)

// names under which Chromium is installed.
var names = []string{"chromium", "chromium-browser", "google-chrome", "google-chrome-stable"}

// Browser is a running Chromium.
type Browser struct {
	t   testing.TB
	in  io.Writer
	err chan error // why the reading ended; one value

	mu      sync.Mutex
	last    int
	waiting map[int]chan answer
	pages   map[string]*Page // by session
}

type answer struct {
	Result json.RawMessage
	Error  *struct{ Message string }
}

// message is anything that Chromium says.
type message struct {
	ID        int             `json:"id"`
	Method    string          `json:"method"`
	SessionID string          `json:"sessionId"`
	Params    json.RawMessage `json:"params"`
	Result    json.RawMessage `json:"result"`
	Error     *struct{ Message string }
}

// Start starts a browser that ends with the test; the test is skipped where there
// is none. args are added to its command line.
func Start(t testing.TB, args ...string) *Browser {
	t.Helper()
	path := ""
	for _, name := range names {
		if p, err := exec.LookPath(name); err == nil {
			path = p
			break
		}
	}
	if path == "" {
		needtest.Chromium.Skipf(t, "needs Chromium: none of %v is installed", names)
	}
	profile := t.TempDir()
	cmd := exec.CommandContext(context.Background(), path, append([]string{
		"--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--no-default-browser-check",
		"--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-extensions", "--hide-scrollbars",
		"--user-data-dir=" + profile, "--remote-debugging-pipe",
	}, args...)...)
	log, err := os.Create(filepath.Join(profile, "log"))
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // it has children
	cmd.Env = append(os.Environ(), "HOME="+profile)
	theirIn, ourOut, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	ourIn, theirOut, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.ExtraFiles = []*os.File{theirIn, theirOut} // descriptors 3 and 4
	if err := cmd.Start(); err != nil {
		t.Fatalf("start %s: %v", path, err)
	}
	_, _ = theirIn.Close(), theirOut.Close()
	b := &Browser{t: t, in: ourOut, err: make(chan error, 1), waiting: map[int]chan answer{}, pages: map[string]*Page{}}
	go b.read(ourIn)
	t.Cleanup(func() {
		_ = b.call("", "Browser.close", nil, nil)
		_ = ourOut.Close()
		kill := time.AfterFunc(10*time.Second, func() { _ = cmd.Process.Kill() })
		_ = cmd.Wait() // it says nothing that matters
		kill.Stop()
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // what of its children is left
		_, _ = ourIn.Close(), log.Close()
		if said, err := os.ReadFile(log.Name()); err == nil && t.Failed() && testing.Verbose() {
			t.Logf("chromium: %s", said)
		}
		removeAll(t, profile)
	})
	return b
}

// removeAll removes the profile: children of the browser may still write to it
// for a moment after it has ended.
func removeAll(t testing.TB, dir string) {
	err := os.RemoveAll(dir)
	for range 50 {
		if err == nil {
			return
		}
		time.Sleep(20 * time.Millisecond)
		err = os.RemoveAll(dir)
	}
	t.Logf("remove the browser's profile: %v", err)
}

func (b *Browser) read(from io.Reader) {
	r := bufio.NewReaderSize(from, 1<<20)
	for {
		raw, err := r.ReadBytes(0)
		if err != nil {
			b.err <- fmt.Errorf("chromium ended: %w", err)
			return
		}
		var m message
		if err := json.Unmarshal(raw[:len(raw)-1], &m); err != nil {
			b.err <- err
			return
		}
		b.mu.Lock()
		if m.ID != 0 {
			if ch := b.waiting[m.ID]; ch != nil {
				ch <- answer{m.Result, m.Error}
				delete(b.waiting, m.ID)
			}
		} else if p := b.pages[m.SessionID]; p != nil {
			p.event(m)
		}
		b.mu.Unlock()
	}
}

// callTimeout bounds one command; a browser that starts on a busy machine takes
// seconds.
const callTimeout = 60 * time.Second

func (b *Browser) call(session, method string, params, result any) error {
	if params == nil {
		params = struct{}{}
	}
	b.mu.Lock()
	b.last++
	id := b.last
	ch := make(chan answer, 1)
	b.waiting[id] = ch
	raw, err := json.Marshal(struct {
		ID        int    `json:"id"`
		Method    string `json:"method"`
		SessionID string `json:"sessionId,omitempty"`
		Params    any    `json:"params"`
	}{id, method, session, params})
	if err == nil {
		_, err = b.in.Write(append(raw, 0))
	}
	b.mu.Unlock()
	if err != nil {
		return err
	}
	select {
	case a := <-ch:
		switch {
		case a.Error != nil:
			return fmt.Errorf("%s: %s", method, a.Error.Message)
		case result != nil:
			return json.Unmarshal(a.Result, result)
		}
		return nil
	case err := <-b.err:
		b.err <- err
		return err
	case <-time.After(callTimeout):
		return fmt.Errorf("%s: no answer within %v", method, callTimeout)
	}
}

// Look is how a page is looked at.
type Look struct {
	Width, Height int // CSS pixels; 1280 × 900 by default
	Mobile, Dark  bool
	NoScript      bool
}

// Page is one tab.
type Page struct {
	b       *Browser
	session string

	mu       sync.Mutex
	requests []string
	problems []string
	loaded   chan struct{} // closed by the next load event
}

// Open makes a tab, in a context of its own, and goes to the address.
func (b *Browser) Open(address string, look Look) *Page {
	b.t.Helper()
	must := func(err error) {
		b.t.Helper()
		if err != nil {
			b.t.Fatal(err)
		}
	}
	var made struct{ BrowserContextID, TargetID, SessionID string }
	must(b.call("", "Target.createBrowserContext", nil, &made))
	must(b.call("", "Target.createTarget", map[string]any{"url": "about:blank", "browserContextId": made.BrowserContextID}, &made))
	must(b.call("", "Target.attachToTarget", map[string]any{"targetId": made.TargetID, "flatten": true}, &made))
	p := &Page{b: b, session: made.SessionID, loaded: make(chan struct{})}
	b.mu.Lock()
	b.pages[p.session] = p
	b.mu.Unlock()
	for _, domain := range []string{"Page", "Runtime", "Network", "Log", "Accessibility"} {
		must(p.Call(domain+".enable", nil, nil))
	}
	p.Look(look)
	p.Go(address)
	return p
}

// Look changes how the page is looked at.
func (p *Page) Look(look Look) {
	p.b.t.Helper()
	if look.Width == 0 {
		look.Width, look.Height = 1280, 900
	}
	scheme := "light"
	if look.Dark {
		scheme = "dark"
	}
	for method, params := range map[string]any{
		"Emulation.setDeviceMetricsOverride":   map[string]any{"width": look.Width, "height": look.Height, "deviceScaleFactor": 1, "mobile": look.Mobile},
		"Emulation.setEmulatedMedia":           map[string]any{"features": []map[string]string{{"name": "prefers-color-scheme", "value": scheme}}},
		"Emulation.setScriptExecutionDisabled": map[string]any{"value": look.NoScript},
	} {
		if err := p.Call(method, params, nil); err != nil {
			p.b.t.Fatal(err)
		}
	}
}

// event takes note of what the page says; the browser's reader calls it.
func (p *Page) event(m message) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch m.Method {
	case "Page.loadEventFired":
		close(p.loaded)
		p.loaded = make(chan struct{})
	case "Network.requestWillBeSent":
		var e struct{ Request struct{ URL string } }
		if json.Unmarshal(m.Params, &e) == nil {
			p.requests = append(p.requests, e.Request.URL)
		}
	case "Runtime.exceptionThrown":
		p.problems = append(p.problems, string(m.Params))
	case "Log.entryAdded":
		var e struct {
			Entry struct{ Level, Text, URL string }
		}
		if json.Unmarshal(m.Params, &e) == nil && (e.Entry.Level == "error" || e.Entry.Level == "warning") {
			p.problems = append(p.problems, e.Entry.Text+" "+e.Entry.URL)
		}
	}
}

// Call sends a command of the DevTools protocol to the page.
func (p *Page) Call(method string, params, result any) error {
	return p.b.call(p.session, method, params, result)
}

// Go goes to the address and waits until it is loaded.
func (p *Page) Go(address string) {
	p.b.t.Helper()
	p.WhileLoading(func() {
		var r struct{ ErrorText string }
		if err := p.Call("Page.navigate", map[string]any{"url": address}, &r); err != nil || r.ErrorText != "" {
			p.b.t.Fatalf("go to %s: %v %s", address, err, r.ErrorText)
		}
	})
}

// WhileLoading does something that loads a page, and waits until it is loaded.
func (p *Page) WhileLoading(do func()) {
	p.b.t.Helper()
	p.mu.Lock()
	loaded := p.loaded
	p.mu.Unlock()
	do()
	select {
	case <-loaded:
	case <-time.After(callTimeout):
		p.b.t.Fatal("the page did not load")
	}
}

// Eval returns the value of a JavaScript expression, which may be a promise. It
// works where the page's own scripts do not run.
func (p *Page) Eval(expression string, result any) error {
	var r struct {
		Result           struct{ Value json.RawMessage }
		ExceptionDetails *struct {
			Text      string
			Exception struct{ Description string }
		}
	}
	err := p.Call("Runtime.evaluate", map[string]any{"expression": expression, "returnByValue": true, "awaitPromise": true, "userGesture": true}, &r)
	if err != nil {
		return err
	}
	if r.ExceptionDetails != nil {
		return errors.New(r.ExceptionDetails.Text + " " + r.ExceptionDetails.Exception.Description)
	}
	if result == nil || len(r.Result.Value) == 0 {
		return nil
	}
	return json.Unmarshal(r.Result.Value, result)
}

// Await waits until a JavaScript expression is true, looking at each change of
// the document.
func (p *Page) Await(ctx context.Context, expression string) error {
	limit := callTimeout
	if d, ok := ctx.Deadline(); ok {
		limit = time.Until(d)
	}
	var ok bool
	err := p.Eval(fmt.Sprintf(`new Promise((done) => {
		const test = () => { try { return Boolean(%s) } catch (e) { return false } };
		if (test()) return done(true);
		const watch = new MutationObserver(() => { if (test()) { watch.disconnect(); done(true) } });
		watch.observe(document, {subtree: true, childList: true, attributes: true, characterData: true});
		setTimeout(() => done(test()), %d);
	})`, expression, limit.Milliseconds()), &ok)
	if err == nil && !ok {
		err = fmt.Errorf("waited in vain until %s", expression)
	}
	return err
}

// Press presses and lets go a key, as "Tab" or "Enter".
func (p *Page) Press(key string, code int, text string) error {
	for _, kind := range []string{"keyDown", "keyUp"} {
		params := map[string]any{"type": kind, "key": key, "code": key, "windowsVirtualKeyCode": code}
		if kind == "keyDown" && text != "" {
			params["text"] = text
		}
		if err := p.Call("Input.dispatchKeyEvent", params, nil); err != nil {
			return err
		}
	}
	return nil
}

// Requests are the addresses that the page asked for, since it was opened.
func (p *Page) Requests() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string(nil), p.requests...)
}

// Problems are the exceptions, errors and warnings, among them violations of the
// Content-Security-Policy.
func (p *Page) Problems() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string(nil), p.problems...)
}

// Screenshot writes all of the page, not only what fits the window, as PNG.
func (p *Page) Screenshot(path string) error {
	var shot struct{ Data string }
	if err := p.Call("Page.captureScreenshot", map[string]any{"format": "png", "captureBeyondViewport": true}, &shot); err != nil {
		return err
	}
	raw, err := base64.StdEncoding.DecodeString(shot.Data)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, raw, 0o644)
}
