package actuator

import (
	"bytes"
	_ "embed"
	"html/template"
	"net/http"
	"time"

	"github.com/laxity/laxity/actuator/decision"
	"github.com/laxity/laxity/exporter/task"
)

//go:embed page.html
var pageHTML string

var page = template.Must(template.New("page").Funcs(template.FuncMap{
	"percent": func(s task.Seconds) float64 { return 100 * float64(s) },
	"clock":   func(t time.Time) string { return t.Format("15:04:05.000") },
	"short":   func(id string) string { return id[:min(12, len(id))] },
}).Parse(pageHTML))

// servePage shows what GET /api/v1/state and /api/v1/decisions say.
func (a *Actuator) servePage(w http.ResponseWriter, _ *http.Request) {
	all, _ := a.decisions.Last(0)
	all = all[max(0, len(all)-20):]
	latest := make([]decision.Decision, 0, len(all))
	for i := range all {
		latest = append(latest, all[len(all)-1-i])
	}
	var b bytes.Buffer
	err := page.Execute(&b, struct {
		*State
		Decisions []decision.Decision
	}{a.State(), latest})
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_, _ = b.WriteTo(w)
}
