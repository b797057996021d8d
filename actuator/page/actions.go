package page

import (
	"context"
	"errors"
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
		message, err := do(ctx, p.o.Gate.Who(r), r.PostForm)
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

// change takes a form with a deadline, a share, or both; an empty field goes back to the label.
func (p *Page) change(ctx context.Context, who string, form url.Values) (string, error) {
	var change task.Change
	var said []string
	becomes, after := "is now", ""
	if p.o.Facts().Service.DryRun {
		becomes, after = "would be", " Nothing was changed: this is a dry run."
	}
	for _, setting := range []string{task.SettingDeadline, task.SettingShare} {
		if !form.Has(setting) {
			continue
		}
		c, err := task.ParseChange(setting, form.Get(setting))
		if err != nil {
			return "", err
		}
		now := "the label's"
		switch {
		case c.Deadline != nil:
			if change.Deadline = c.Deadline; *c.Deadline > 0 {
				now = task.DeadlineWords(task.SecondsOf(*c.Deadline))
			}
		case c.Share != nil:
			if change.Share = c.Share; *c.Share > 0 {
				now = task.ShareWords(*c.Share)
			}
		}
		said = append(said, fmt.Sprintf("The %s %s %s.", setting, becomes, now))
	}
	if said == nil {
		return "", errors.New("nothing to change: send a deadline or a share")
	}
	return strings.Join(said, " ") + after, p.o.Actor.Change(ctx, who, form.Get("container"), change)
}

func home(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Location", "./")
	w.WriteHeader(http.StatusSeeOther)
}
