// Package page is the live page of the actuator: what its GPUs and containers do
// and why, as server-rendered HTML and SVG that keeps itself up to date, and for
// those who may, buttons that act. New → Run, Router.
//
// It serves; what is shown is made in package view, when tasks stood still is
// remembered in package timeline.
package page

import (
	"bytes"
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"html/template"
	"io/fs"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/go-chi/chi/v5"

	"github.com/laxity/laxity/actuator/page/timeline"
	"github.com/laxity/laxity/actuator/page/view"
	"github.com/laxity/laxity/actuator/placement"
	"github.com/laxity/laxity/actuator/source"
	"github.com/laxity/laxity/exporter/task"
	"github.com/laxity/laxity/internal/access"
)

//go:embed html assets
var files embed.FS

// Gate says who may act: access.Gate.
type Gate interface {
	// Change is around handlers that change something; it refuses who may not act.
	Change(next http.Handler) http.Handler
	// Stream is around handlers that go on for ever; it bounds those of strangers.
	Stream(next http.Handler) http.Handler
	// Check says why a request may not act; nil: it may.
	Check(r *http.Request) error
	// Who names who sends a request that may act.
	Who(r *http.Request) string
}

// Actor carries out what a person asks for. Containers are full ids; the errors
// are sentences for people.
type Actor interface {
	// Pause holds the container until it is released, or as long as is allowed.
	Pause(ctx context.Context, who, container string) error
	// Release lets the container run to the end of its present tasks.
	Release(ctx context.Context, who, container string) error
	// Change changes settings of the container.
	Change(ctx context.Context, who, container string, change task.Change) error
}

// Options of a Page. Facts, Gate and Actor are required.
type Options struct {
	// Facts returns what is true now; the page itself fills in Now, Window, May,
	// Tasks and Ranking.
	Facts func() view.Facts
	Gate  Gate
	Actor Actor
	// Ranking asks for the ranking of the nodes; nil is no placement. It may take
	// its time: at most one call is under way, and none without readers.
	Ranking func(context.Context) placement.Overview
	Logger  *slog.Logger
	Now     func() time.Time
}

// Page is safe for concurrent use.
type Page struct {
	o         Options
	templates *template.Template
	version   string // of markup, style and script
	history   *timeline.History
	snapshots chan *task.Snapshot
	hub       *hub
	ranking   cache
	ended     chan struct{}
}

// sections are the parts of the page that change, in their order.
var sections = []string{"status", "gpus", "containers", "nodes", "decisions"}

// New makes a Page.
func New(o Options) (*Page, error) {
	if o.Facts == nil || o.Gate == nil || o.Actor == nil {
		return nil, errors.New("page: Facts, Gate and Actor are required")
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	p := &Page{o: o, history: timeline.New(slices.Max(view.Windows)), snapshots: make(chan *task.Snapshot, 1), ended: make(chan struct{})}
	p.hub = newHub(p.frame)
	p.ranking.ask = o.Ranking
	var err error
	if p.templates, err = template.New("").Funcs(template.FuncMap{"labelled": labelled}).ParseFS(files, "html/*.html"); err != nil {
		return nil, err
	}
	p.version, err = fingerprint()
	return p, err
}

// meter is a view.Meter with its name.
type meter struct {
	view.Meter
	Name, More string
}

func labelled(name string, m view.Meter, more string) meter { return meter{m, name, more} }

// fingerprint names what is embedded.
func fingerprint() (string, error) {
	h := sha256.New()
	err := fs.WalkDir(files, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		raw, err := files.ReadFile(path)
		fmt.Fprintf(h, "%s %d\n", path, len(raw))
		h.Write(raw)
		return err
	})
	return hex.EncodeToString(h.Sum(nil))[:12], err
}

// Observe adds a snapshot to the history. It does not block; there must be one caller.
func (p *Page) Observe(s *task.Snapshot) {
	source.Latest(p.snapshots, s)
}

// Changed says that there is something new to show. It does not block.
func (p *Page) Changed() { p.hub.changed() }

// Run remembers what the snapshots say, until ctx ends; then it ends the streams.
func (p *Page) Run(ctx context.Context) {
	defer close(p.ended)
	type version struct {
		run      string
		sequence uint64
	}
	var last version
	for {
		select {
		case <-ctx.Done():
			return
		case s := <-p.snapshots:
			p.history.Observe(s)
			if now := (version{s.Run, s.Sequence}); now != last {
				last = now
				p.Changed()
			}
		}
	}
}

// Router serves the page and what belongs to it, to be mounted at /.
func (p *Page) Router() chi.Router {
	r := chi.NewRouter()
	r.Use(secured)
	r.HandleFunc("GET /", p.servePage)
	r.Handle("GET /events", p.o.Gate.Stream(http.HandlerFunc(p.serveEvents)))
	r.HandleFunc("GET /assets/{name}", p.serveAsset)
	// A browser that is refused here asks its user for a password, which it then sends
	// with all requests.
	r.Handle("GET /login", p.o.Gate.Change(http.HandlerFunc(home)))
	r.Handle("POST /actions/pause", p.o.Gate.Change(p.action("pause", p.pause)))
	r.Handle("POST /actions/release", p.o.Gate.Change(p.action("release", p.release)))
	r.Handle("POST /actions/change", p.o.Gate.Change(p.action("change", p.change)))
	return r
}

// secured sets what a browser must keep to: nothing comes from elsewhere, nothing
// goes elsewhere, and no other page may show this one in a frame.
func secured(next http.Handler) http.Handler {
	const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("X-Frame-Options", "DENY")
		h.Set("Referrer-Policy", "same-origin") // no-referrer would make a form's Origin "null"
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cache-Control", "no-store")
		next.ServeHTTP(w, r)
	})
}

// variant is what differs between readers; those of one variant see the same.
type variant struct {
	window time.Duration
	may    bool
}

// facts puts together what a variant shows.
func (p *Page) facts(v variant) view.Facts {
	f := p.o.Facts()
	f.Now, f.Window, f.May = p.o.Now(), v.window, v.may
	f.Tasks = p.history.Since(f.Now.Add(-v.window))
	f.Ranking = p.ranking.value(f.Now)
	return f
}

// frame renders what changes.
func (p *Page) frame(v variant) map[string]string {
	shown := view.Build(p.facts(v))
	f, err := p.sections(shown)
	if err != nil { // a template that fails is a fault of ours
		p.o.Logger.Error("cannot render the page", "err", err)
		return nil
	}
	f["latest"] = shown.Latest
	return f
}

func (p *Page) sections(shown view.Page) (map[string]string, error) {
	out := map[string]string{}
	for _, name := range sections {
		var b bytes.Buffer
		if err := p.templates.ExecuteTemplate(&b, name, shown); err != nil {
			return nil, err
		}
		out[name] = b.String()
	}
	return out, nil
}

// section is a part of the page, rendered.
type section struct {
	ID   string
	HTML template.HTML
}

// document is the page around its sections.
type document struct {
	Page     view.Page
	Visitor  visitor
	Sections []section
	Version  string
	Events   string
	Window   string
	// Still: nothing moves by itself.
	Still               bool
	Clock, Zone, Notice string
}

// Href is the page with another window.
func (d document) Href(window string, still bool) string {
	q := url.Values{"window": {window}}
	if still {
		q.Set("still", "1")
	}
	return "./?" + q.Encode()
}

// notices answer a form that was sent without the script.
var notices = map[string]string{
	"pause":   "Pause requested; see the last decisions.",
	"release": "Release requested; see the last decisions.",
	"change":  "Changed; see the last decisions.",
}

func (p *Page) servePage(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	who := p.visitor(r)
	v := variant{window: window(q.Get("window")), may: who.May}
	p.ranking.await(r.Context(), p.o.Now())
	shown := view.Build(p.facts(v))
	rendered, err := p.sections(shown)
	if err != nil {
		p.o.Logger.Error("cannot render the page", "err", err)
		http.Error(w, "the page cannot be rendered; see the actuator's log", http.StatusInternalServerError)
		return
	}
	now := p.o.Now()
	minutes := fmt.Sprintf("%dm", v.window/time.Minute)
	d := document{
		Page: shown, Visitor: who, Version: p.version, Events: "events?window=" + minutes, Window: minutes,
		Still: q.Get("still") == "1", Clock: now.Format("15:04:05"), Zone: now.Format("MST, UTC-07:00"), Notice: notices[q.Get("done")],
	}
	for _, name := range sections {
		d.Sections = append(d.Sections, section{name, template.HTML(rendered[name])}) // html/template made it
	}
	p.render(w, http.StatusOK, "page.html", d)
}

func (p *Page) render(w http.ResponseWriter, code int, name string, data any) {
	var b bytes.Buffer
	if err := p.templates.ExecuteTemplate(&b, name, data); err != nil {
		p.o.Logger.Error("cannot render the page", "err", err)
		http.Error(w, "the page cannot be rendered; see the actuator's log", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(code)
	_, _ = b.WriteTo(w) // the reader is gone if this fails
}

// window parses the length of the time line; the default if it is not one of view.Windows.
func window(text string) time.Duration {
	d, err := time.ParseDuration(text)
	if err != nil || !slices.Contains(view.Windows, d) {
		return view.DefaultWindow
	}
	return d
}

// visitor says what the reader may do.
type visitor struct {
	// May act. Who is the name that decisions record.
	May bool
	Who string
	// Why says why not, in a sentence. Login: a password would help.
	Why   string
	Login bool
}

func (p *Page) visitor(r *http.Request) visitor {
	err := p.o.Gate.Check(r)
	switch {
	case err == nil:
		return visitor{May: true, Who: p.o.Gate.Who(r)}
	case errors.Is(err, access.ErrDenied):
		return visitor{Login: true, Why: "To act, sign in: any user name, a token as the password."}
	case errors.Is(err, access.ErrNotHere):
		return visitor{Why: "Only a browser on this machine, by the address localhost, may act without authentication."}
	default:
		p.o.Logger.Error("cannot check who may act", "err", err)
		return visitor{Why: "The actuator cannot check now who may act; see its log."}
	}
}

var assetTypes = map[string]string{"page.css": "text/css; charset=utf-8", "page.js": "text/javascript; charset=utf-8", "icon.svg": "image/svg+xml"}

func (p *Page) serveAsset(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("name")
	kind, ok := assetTypes[name]
	raw, err := files.ReadFile("assets/" + name)
	if !ok || err != nil {
		http.NotFound(w, r)
		return
	}
	if strings.EqualFold(r.URL.Query().Get("v"), p.version) {
		w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
	}
	w.Header().Set("Content-Type", kind)
	_, _ = w.Write(raw)
}
