package service

import (
	"bytes"
	_ "embed"
	"html/template"
	"net/http"
	"time"

	"github.com/laxity/laxity/actuator/placement"
	"github.com/laxity/laxity/actuator/placement/api"
	"github.com/laxity/laxity/actuator/placement/placer"
	"github.com/laxity/laxity/actuator/placement/reservation"
)

//go:embed page.html
var pageHTML string

var page = template.Must(template.New("placements").Funcs(template.FuncMap{
	"bytes": placement.Bytes,
	"until": func(now, t time.Time) string {
		if t.IsZero() {
			return "its container ends"
		}
		return t.Sub(now).Round(time.Second).String()
	},
}).Parse(pageHTML))

// page shows what the API says, for the request in the query string.
func (s *Service) page(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	show := struct {
		Now                        time.Time
		Deadline, Memory, Estimate string
		Method                     placement.Method
		Error                      string
		Ranking                    api.Nodes
		Reservations               []reservation.Entry
	}{Now: s.o.Now(), Deadline: q.Get("deadline"), Memory: q.Get("gpu_memory"), Estimate: q.Get("estimate"), Method: s.placer.Method(), Reservations: s.placer.List()}
	req, err := api.Wanted{Deadline: api.Text(show.Deadline), GPUMemory: api.Text(show.Memory), Estimate: api.Text(show.Estimate)}.Request()
	var ranking placement.Ranking
	if err == nil {
		ranking, err = s.explain(r, req)
	}
	if err != nil {
		show.Error = err.Error()
	}
	show.Ranking = api.NodesOf(ranking, show.Now)
	var b bytes.Buffer
	if err := page.Execute(&b, show); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_, _ = b.WriteTo(w)
}

func (s *Service) explain(r *http.Request, req placer.Request) (placement.Ranking, error) {
	return s.placer.Explain(r.Context(), req)
}
