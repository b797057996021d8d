package actuator

import (
	"cmp"
	"errors"
	"net/http"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/laxity/laxity/actuator/api"
	"github.com/laxity/laxity/internal/access"
)

// Handler serves the API, the metrics and the live page. It needs Run only to
// have something to show; alerts are accepted before.
func (a *Actuator) Handler() http.Handler {
	registry := prometheus.NewRegistry()
	registry.MustRegister(a.metrics)
	if a.forward != nil {
		registry.MustRegister(a.forward)
	}
	return api.Router(api.Options{
		Guard: a.access, Actuator: a, State: func() any { return a.State() }, Decisions: a.decisions,
		Metrics: registry, Page: a.page.Router(), Mount: a.o.Mount, Answered: a.answered, Logger: a.log,
	})
}

// openAccess makes the guard.
func (a *Actuator) openAccess() {
	o := a.o.Access
	o.Logger, o.Now, o.Refuse = a.log, a.o.Now, api.Refuse(a.answered)
	a.access = access.New(o)
}

// answered counts the answers to notifications.
func (a *Actuator) answered(code int) { a.metrics.Webhooks.WithLabelValues(strconv.Itoa(code)).Inc() }

// Ready says why it cannot act; nil: it can.
func (a *Actuator) Ready() error {
	s := a.State()
	if s.Ready {
		return nil
	}
	return errors.New(cmp.Or(s.Trouble, s.Standby, "no guardian watches, or it has only just started"))
}
