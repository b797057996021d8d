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

// action answers a form: with a sentence for the script, with the page for a browser
// without it.
func (p *Page) action(name string, do func(ctx context.Context, who string, form url.Values) (string, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Body = http.MaxBytesReader(w, r.Body, maxForm)
		if err := r.ParseForm(); err != nil {
			p.refuse(w, r, http.StatusBadRequest, err.Error())
			return
		}
		ctx, cancel := context.WithTimeout(r.Context(), actionTimeout)
		defer cancel()
		message, err := do(ctx, p.o.Guard.Who(r), r.PostForm)
		if err != nil {
			p.refuse(w, r, http.StatusConflict, err.Error())
			return
		}
		if !wantsPage(r) {
			answer(w, http.StatusOK, message)
			return
		}
		w.Header().Set("Location", "../?done="+name)
		w.WriteHeader(http.StatusSeeOther)
	})
}

// wantsPage reports whether a browser asks, not our script.
func wantsPage(r *http.Request) bool { return strings.Contains(r.Header.Get("Accept"), "text/html") }

func answer(w http.ResponseWriter, code int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(code)
	fmt.Fprintln(w, text)
}

// refused is the page of a form that was not carried out.
type refused struct{ Problem, Version string }

func (p *Page) refuse(w http.ResponseWriter, r *http.Request, code int, why string) {
	if !wantsPage(r) {
		answer(w, code, "Failed: "+why)
		return
	}
	p.render(w, code, "refused.html", refused{why, p.version})
}

func (p *Page) pause(ctx context.Context, who string, form url.Values) (string, error) {
	return "Pause requested.", p.o.Actor.Pause(ctx, who, form.Get("container"))
}

func (p *Page) release(ctx context.Context, who string, form url.Values) (string, error) {
	return "Release requested; the container is not held again for its present tasks.", p.o.Actor.Release(ctx, who, form.Get("container"))
}

func (p *Page) deadline(ctx context.Context, who string, form url.Values) (string, error) {
	text := strings.TrimSpace(form.Get("deadline"))
	var relative time.Duration
	message := "The deadline is now the label's."
	if text != "" {
		var err error
		if relative, err = task.ParseDeadline(text); err != nil {
			return "", err
		}
		message = "The deadline is now " + relative.String() + "."
	}
	return message, p.o.Actor.SetDeadline(ctx, who, form.Get("container"), relative)
}

func home(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Location", "./")
	w.WriteHeader(http.StatusSeeOther)
}
