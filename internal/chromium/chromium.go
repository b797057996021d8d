// Package chromium opens pages in a headless Chromium, for tests, by chromedp. It sets the window,
// the colour scheme and the credentials, and collects the browser's complaints.
package chromium

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/fetch"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/laxity/laxity/internal/needtest"
)

// names under which Chromium is installed.
var names = []string{"chromium", "chromium-browser", "google-chrome", "google-chrome-stable"}

// timeout bounds one command; a browser that starts on a busy machine takes seconds.
const timeout = 60 * time.Second

// Browser is a running Chromium.
type Browser struct {
	t   testing.TB
	ctx context.Context
}

// Start starts a browser that ends with the test. It skips the test if there is no browser.
func Start(t testing.TB) *Browser {
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
	options := append(slices.Clone(chromedp.DefaultExecAllocatorOptions[:]),
		chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.DisableGPU, chromedp.WSURLReadTimeout(timeout))
	ctx, end := chromedp.NewExecAllocator(context.Background(), options...)
	t.Cleanup(end)
	ctx, end = chromedp.NewContext(ctx)
	t.Cleanup(end)
	if err := chromedp.Do(ctx); err != nil {
		t.Fatalf("start %s: %v", path, err)
	}
	return &Browser{t, ctx}
}

// Look is how a page is viewed.
type Look struct {
	Width, Height int64 // CSS pixels; 1280 × 900 by default
	Mobile, Dark  bool
	NoScript      bool
	// User and Password are what a person types when the browser asks. If they are wrong, the person
	// cancels.
	User, Password string
}

// Page is one tab.
type Page struct {
	b   *Browser
	ctx context.Context

	mu       sync.Mutex
	requests []string
	problems []string
	asked    map[string]bool // for a password, by address
	loaded   chan struct{}   // closed by the next load event
}

// Open makes a tab, with its own storage, and opens the address.
func (b *Browser) Open(address string, look Look) *Page {
	b.t.Helper()
	ctx, end := chromedp.NewContext(b.ctx, chromedp.WithNewBrowserContext())
	b.t.Cleanup(end)
	p := &Page{b: b, ctx: ctx, asked: map[string]bool{}, loaded: make(chan struct{})}
	p.must(chromedp.Do(ctx)) // the tab lives as long as the context of its first call
	p.must(chromedp.Listen(ctx, func(event any) { p.event(event, look) }))
	_, err := chromedp.Call(ctx, network.Enable, network.EnableParams{})
	p.must(err)
	if look.Password != "" {
		_, err = chromedp.Call(ctx, fetch.Enable, fetch.EnableParams{HandleAuthRequests: new(true)})
		p.must(err)
	}
	p.look(look)
	p.Go(address)
	return p
}

func (p *Page) must(err error) {
	p.b.t.Helper()
	if err != nil {
		p.b.t.Fatal(err)
	}
}

func (p *Page) look(look Look) {
	p.b.t.Helper()
	if look.Width == 0 {
		look.Width, look.Height = 1280, 900
	}
	scheme := "light"
	if look.Dark {
		scheme = "dark"
	}
	options := []chromedp.EmulateViewportOption{chromedp.EmulateScale(1)}
	if look.Mobile {
		options = append(options, chromedp.EmulateMobile)
	}
	p.must(chromedp.Do(p.ctx, chromedp.EmulateViewport(look.Width, look.Height, options...)))
	_, err := chromedp.Call(p.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}})
	p.must(err)
	_, err = chromedp.Call(p.ctx, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: look.NoScript})
	p.must(err)
}

// event handles an event of the page.
func (p *Page) event(event any, look Look) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch e := event.(type) {
	case *page.EventLoadEventFired:
		close(p.loaded)
		p.loaded = make(chan struct{})
	case *network.EventRequestWillBeSent:
		p.requests = append(p.requests, e.Request.URL)
	case *runtime.EventExceptionThrown:
		p.problems = append(p.problems, fmt.Sprintf("%s: %+v", e.ExceptionDetails.Text, e.ExceptionDetails.Exception))
	case *log.EventEntryAdded:
		if e.Entry.Level == log.EntryLevelError || e.Entry.Level == log.EntryLevelWarning {
			p.problems = append(p.problems, e.Entry.Text+" "+e.Entry.URL)
		}
	case *fetch.EventRequestPaused:
		go p.answer(func() error {
			_, err := chromedp.Call(p.ctx, fetch.ContinueRequest, fetch.ContinueRequestParams{RequestID: e.RequestID})
			return err
		})
	case *fetch.EventAuthRequired:
		answer := &fetch.AuthChallengeResponse{Response: fetch.AuthChallengeResponseResponseCancelAuth}
		if !p.asked[e.Request.URL] {
			answer = &fetch.AuthChallengeResponse{Response: fetch.AuthChallengeResponseResponseProvideCredentials, Username: look.User, Password: look.Password}
		}
		p.asked[e.Request.URL] = true
		go p.answer(func() error {
			_, err := chromedp.Call(p.ctx, fetch.ContinueWithAuth, fetch.ContinueWithAuthParams{RequestID: e.RequestID, AuthChallengeResponse: answer})
			return err
		})
	}
}

// answer tells the browser how to continue a request, which may be gone by now.
func (p *Page) answer(do func() error) {
	if err := do(); err != nil && p.ctx.Err() == nil {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.requests = append(p.requests, fmt.Sprintf("(not answered: %v)", err))
	}
}

// Go opens the address and waits until it is loaded.
func (p *Page) Go(address string) {
	p.b.t.Helper()
	p.must(Do(p, chromedp.Navigate(address)))
}

// Do runs steps of chromedp.
func Do(p *Page, steps ...chromedp.Action[chromedp.Void]) error {
	ctx, cancel := context.WithTimeout(p.ctx, timeout)
	defer cancel()
	return chromedp.Do(ctx, steps...)
}

// Run runs a step of chromedp and returns its result.
func Run[T any](p *Page, step chromedp.Action[T]) (T, error) {
	ctx, cancel := context.WithTimeout(p.ctx, timeout)
	defer cancel()
	return chromedp.Run(ctx, step)
}

// WhileLoading runs do, which loads a page, and waits until it is loaded.
func (p *Page) WhileLoading(do func()) {
	p.b.t.Helper()
	p.mu.Lock()
	loaded := p.loaded
	p.mu.Unlock()
	do()
	select {
	case <-loaded:
	case <-time.After(timeout):
		p.b.t.Fatal("the page did not load")
	}
}

// Eval returns the value of a JavaScript expression, which may be a promise. It
// works where the page's own scripts do not run.
func Eval[T any](p *Page, expression string) (T, error) {
	return Run(p, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise, func(e *runtime.EvaluateParams) { e.UserGesture = new(true) }))
}

// Await waits until a JavaScript expression is true.
func (p *Page) Await(expression string) error {
	err := Do(p, chromedp.Poll[chromedp.Void](`(() => { try { return Boolean(`+expression+`) } catch (e) { return false } })()`,
		chromedp.WithPollingTimeout(timeout)))
	if err != nil {
		err = fmt.Errorf("waited in vain until %s: %w", expression, err)
	}
	return err
}

// Requests returns the addresses that the page has requested since it was opened.
func (p *Page) Requests() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.requests)
}

// Problems returns the exceptions, errors and warnings, including violations of the
// Content-Security-Policy.
func (p *Page) Problems() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.problems)
}

// Screenshot writes the whole page, beyond the window too, as PNG.
func (p *Page) Screenshot(path string) error {
	raw, err := Run(p, chromedp.FullScreenshot(100))
	return errors.Join(err, os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, raw, 0o644))
}
