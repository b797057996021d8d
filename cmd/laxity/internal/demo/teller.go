package demo

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/laxity/laxity/actuator/decision"
	"github.com/laxity/laxity/actuator/webhook"
	"github.com/laxity/laxity/cmd/internal/view"
	"github.com/laxity/laxity/exporter/task"
	"github.com/laxity/laxity/internal/plain"
)

// teller prints what happens, one line at a time, from several goroutines.
type teller struct {
	mu     sync.Mutex
	out    io.Writer
	begun  time.Time // zero: only line prints
	prefix string    // of our containers' names; not printed
	gpus   func() *task.Snapshot
	alerts map[string]bool
}

// line prints a line of its own.
func (t *teller) line(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	fmt.Fprintf(t.out, format+"\n", args...)
}

// begin starts the clock of a round.
func (t *teller) begin(prefix string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.begun, t.prefix, t.alerts = time.Now(), prefix, map[string]bool{}
}

func (t *teller) happened(at time.Time, who, what string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.begun.IsZero() {
		return
	}
	fmt.Fprintf(t.out, "%7.2fs  %-9s %s\n", max(0, at.Sub(t.begun).Seconds()), plain.Line(strings.TrimPrefix(who, t.prefix)), plain.Line(view.NameGPUs(what, t.gpus())))
}

// alert prints when an alert begins and when it ends, not its repeats.
func (t *teller) alert(a webhook.Alert) {
	container := a.Labels["container"]
	t.mu.Lock()
	firing := a.Status == webhook.Firing
	news := t.alerts != nil && t.alerts[a.Fingerprint] != firing && (container == "" || strings.HasPrefix(container, t.prefix))
	if news {
		t.alerts[a.Fingerprint] = firing
	}
	t.mu.Unlock()
	if !news {
		return
	}
	what := "over: " + a.Labels["alertname"]
	if firing {
		what = "ALERT " + a.Labels["alertname"]
		if summary := a.Annotations["summary"]; summary != "" {
			what += ": " + strings.ReplaceAll(summary, t.prefix, "")
		}
	}
	t.happened(time.Now(), "rules", what)
}

func (t *teller) decided(d decision.Decision) {
	if d.Kind != decision.Pause && d.Kind != decision.Unpause {
		return
	}
	what := fmt.Sprintf("%ss %s", d.Kind, strings.TrimPrefix(d.Container, t.prefix))
	if d.Result != decision.Done {
		what += " (" + string(d.Result) + ")"
	}
	t.happened(d.Time, "actuator", what+": "+strings.ReplaceAll(d.Reason, t.prefix, ""))
}
