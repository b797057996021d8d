package page

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/laxity/laxity/exporter/task"
)

const (
	maxForm       = 4 << 10 // bytes
	actionTimeout = 10 * time.Second
)

// sameOrigin reports whether a request comes from this page itself. All browsers
// send Origin with a POST; what sends neither header is not this page.
func sameOrigin(r *http.Request) bool {
	if site := r.Header.Get("Sec-Fetch-Site"); site != "" && site != "same-origin" {
		return false
	}
	u, err := url.Parse(r.Header.Get("Origin"))
	return err == nil && u.Host != "" && u.Host == r.Host
}

// serveAction answers a form: with a sentence for the script, with the page for
// a browser without it.
func (p *Page) serveAction(name string, do func(ctx context.Context, who string, form url.Values) (string, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if !sameOrigin(r) {
			p.refuse(w, r, http.StatusForbidden, "this comes from another site")
			return
		}
		access := p.access(r)
		if !access.May {
			p.refuse(w, r, http.StatusForbidden, "you may only read. "+access.Why)
			return
		}
		r.Body = http.MaxBytesReader(w, r.Body, maxForm)
		if err := r.ParseForm(); err != nil {
			p.refuse(w, r, http.StatusBadRequest, err.Error())
			return
		}
		ctx, cancel := context.WithTimeout(r.Context(), actionTimeout)
		defer cancel()
		said, err := do(ctx, access.Who, r.PostForm)
		if err != nil {
			p.refuse(w, r, http.StatusConflict, err.Error())
			return
		}
		if !wantsPage(r) {
			answer(w, http.StatusOK, said)
			return
		}
		w.Header().Set("Location", "../?done="+name)
		w.WriteHeader(http.StatusSeeOther)
	}
}

// wantsPage reports whether a browser asks, not our script.
func wantsPage(r *http.Request) bool { return strings.Contains(r.Header.Get("Accept"), "text/html") }

func answer(w http.ResponseWriter, code int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(code)
	fmt.Fprintln(w, text)
}

func (p *Page) refuse(w http.ResponseWriter, r *http.Request, code int, why string) {
	if !wantsPage(r) {
		answer(w, code, "Not done: "+why)
		return
	}
	s := sheet{Title: "Not done", Problem: why}
	if strings.Contains(r.URL.Path, "/actions/") {
		s.Base = "../"
	}
	p.sheet(w, code, s)
}

func (p *Page) pause(ctx context.Context, who string, form url.Values) (string, error) {
	return "Asked for; it is being paused.", p.o.Actor.Pause(ctx, who, form.Get("container"))
}

func (p *Page) release(ctx context.Context, who string, form url.Values) (string, error) {
	return "Asked for; it is being let go, to the end of its present tasks.", p.o.Actor.Release(ctx, who, form.Get("container"))
}

func (p *Page) deadline(ctx context.Context, who string, form url.Values) (string, error) {
	text := strings.TrimSpace(form.Get("deadline"))
	var relative time.Duration
	said := "The deadline is its label's again."
	if text != "" {
		var err error
		if relative, err = task.ParseDeadline(text); err != nil {
			return "", err
		}
		said = "The deadline is " + relative.String() + " now."
	}
	return said, p.o.Actor.SetDeadline(ctx, who, form.Get("container"), relative)
}

// sheet is a small page: to sign in, or to say what is wrong.
type sheet struct {
	Title, Problem, Version string
	// Base leads to the page.
	Base string
	Form bool
}

func (p *Page) sheet(w http.ResponseWriter, code int, s sheet) {
	s.Version = p.version
	p.render(w, code, "sheet.html", s)
}

func (p *Page) serveLogin(w http.ResponseWriter, r *http.Request) {
	if p.o.Sessions == nil {
		http.NotFound(w, r)
		return
	}
	p.sheet(w, http.StatusOK, sheet{Title: "Sign in", Form: true})
}

func (p *Page) serveSignIn(w http.ResponseWriter, r *http.Request) {
	switch {
	case p.o.Sessions == nil:
		http.NotFound(w, r)
		return
	case !sameOrigin(r):
		p.sheet(w, http.StatusForbidden, sheet{Title: "Sign in", Problem: "this comes from another site", Form: true})
		return
	}
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	if err := p.o.Sessions.SignIn(w, r, r.PostFormValue("token")); err != nil {
		p.sheet(w, http.StatusUnauthorized, sheet{Title: "Sign in", Problem: err.Error(), Form: true})
		return
	}
	home(w)
}

func (p *Page) serveSignOut(w http.ResponseWriter, r *http.Request) {
	if p.o.Sessions == nil {
		http.NotFound(w, r)
		return
	}
	if !sameOrigin(r) {
		p.refuse(w, r, http.StatusForbidden, "this comes from another site")
		return
	}
	p.o.Sessions.SignOut(w, r)
	home(w)
}

func home(w http.ResponseWriter) {
	w.Header().Set("Location", "./")
	w.WriteHeader(http.StatusSeeOther)
}
