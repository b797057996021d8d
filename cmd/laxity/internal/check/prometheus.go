package check

import (
	"context"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/promql/parser"
	"go.yaml.in/yaml/v3"

	"github.com/laxity/laxity/rules"
)

// rule is one rule, ours or one that a Prometheus has loaded.
type rule struct {
	Name      string `json:"name"`
	Query     string `json:"query"`
	Health    string `json:"health"`
	LastError string `json:"lastError"`
}

// target is one that a Prometheus scrapes.
type target struct {
	Labels    map[string]string `json:"labels"`
	Health    string            `json:"health"`
	LastError string            `json:"lastError"`
	ScrapeURL string            `json:"scrapeUrl"`
	Interval  string            `json:"scrapeInterval"`
}

// prometheusFacts are what a Prometheus says.
type prometheusFacts struct {
	at            Address
	err           error
	ours          []rule
	loaded        []rule
	targets       []target
	alertmanagers int
	flags         map[string]string // its command line, with defaults; nil: it does not say
	slowest       time.Duration     // the longest interval of the groups that have rules of ours
}

func gatherPrometheus(ctx context.Context, at Address) (f prometheusFacts) {
	f.at = at
	var loaded struct {
		Data struct {
			Groups []struct {
				Name     string
				Interval float64
				Rules    []rule
			}
		}
	}
	if f.err = fetch(ctx, at, "/api/v1/rules", nil, &loaded); f.err != nil {
		return f
	}
	for _, g := range loaded.Data.Groups {
		f.loaded = append(f.loaded, g.Rules...)
		if strings.HasPrefix(g.Name, "laxity-") {
			f.slowest = max(f.slowest, time.Duration(g.Interval*float64(time.Second)))
		}
	}
	var scraped struct {
		Data struct {
			ActiveTargets []target `json:"activeTargets"`
		}
	}
	if f.err = fetch(ctx, at, "/api/v1/targets?state=active", nil, &scraped); f.err != nil {
		return f
	}
	f.targets = scraped.Data.ActiveTargets
	var answer struct {
		Data struct {
			Active []struct{} `json:"activeAlertmanagers"`
		}
	}
	if f.err = fetch(ctx, at, "/api/v1/alertmanagers", nil, &answer); f.err != nil {
		return f
	}
	f.alertmanagers = len(answer.Data.Active)
	var flags struct{ Data map[string]string }
	if fetch(ctx, at, "/api/v1/status/flags", nil, &flags) == nil { // what only speaks Prometheus's API may have none
		f.flags = flags.Data
	}
	f.ours, f.err = ownRules()
	return f
}

// ownRules reads the rules that this program carries.
func ownRules() ([]rule, error) {
	var all []rule
	for _, name := range []string{"recording.yml", "alerts.yml"} {
		raw, err := fs.ReadFile(rules.FS, name)
		if err != nil {
			return nil, err
		}
		var file struct {
			Groups []struct {
				Rules []struct{ Record, Alert, Expr string }
			}
		}
		if err := yaml.Unmarshal(raw, &file); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		for _, g := range file.Groups {
			for _, r := range g.Rules {
				all = append(all, rule{Name: r.Record + r.Alert, Query: r.Expr})
			}
		}
	}
	return all, nil
}

func (f prometheusFacts) judge() []Finding {
	out := findings{area: "Prometheus"}
	if f.err != nil {
		out.away(f.at, f.err, "no rules are evaluated, so nothing triggers the actuator", "laxity up needs none; for a fleet see compose/README.md; elsewhere: --prometheus.url")
		return out.list
	}
	out.ok("running", f.at.URL)
	f.judgeRules(&out)
	f.judgeTargets(&out)
	f.judgeFlags(&out)
	if f.alertmanagers > 0 {
		out.ok("alerting", fmt.Sprintf("%d Alertmanagers", f.alertmanagers))
	} else {
		out.add(Fail, "alerting", "it knows no Alertmanager", "no alert reaches the actuator", "alerting: alertmanagers: in prometheus.yml, as in compose/prometheus.yml")
	}
	return out.list
}

// What a Prometheus that pauses containers in time has, and a stock one has not.
const (
	slowScrape = 10 * time.Second // rules take no facts that are older
	slowResend = 10 * time.Second
)

// judgeFlags finds what a stock Prometheus lacks: it works, and later.
func (f prometheusFacts) judgeFlags(out *findings) {
	well := true
	warn := func(name, found, means, fix string) {
		well = false
		out.add(Warn, name, found, means, fix)
	}
	if f.slowest > slowScrape {
		warn("evaluation interval", f.slowest.String(), "alerts and rankings are that late: deadlines shorter than this are missed before anybody acts", "evaluation_interval: 1s in prometheus.yml (100ms on a small fleet), as in compose/prometheus.yml")
	}
	for _, t := range f.targets {
		d, err := model.ParseDuration(t.Interval)
		if t.Labels["job"] == "laxity-exporter" && err == nil && time.Duration(d) > slowScrape {
			warn("scrape interval", "exporters are scraped every "+t.Interval, "facts are that old, and nodes count as stale after 30 s", "scrape_interval: 1s for the job laxity-exporter, as in compose/prometheus.yml")
			break
		}
	}
	if d, err := model.ParseDuration(f.flags["rules.alert.resend-delay"]); err == nil && time.Duration(d) > slowResend {
		warn("--rules.alert.resend-delay", d.String(), fmt.Sprintf("an alert counts as resolved %v after Prometheus is gone: so long may a container stay held for nothing", 4*time.Duration(d)), "start Prometheus with --rules.alert.resend-delay=5s (Debian: ARGS in /etc/default/prometheus)")
	}
	if well && f.flags != nil {
		out.ok("flags", "intervals and --rules.alert.resend-delay are as they should be")
	}
}

func (f prometheusFacts) judgeRules(out *findings) {
	p := parser.NewParser(parser.Options{})
	same := func(a, b string) bool {
		x, errX := p.ParseExpr(a)
		y, errY := p.ParseExpr(b)
		return errX == nil && errY == nil && x.String() == y.String()
	}
	var missing, other, broken []string
	for _, own := range f.ours {
		// A name may stand for several rules, as node:fresh:bool might for 0 and 1.
		named := func(r rule) bool { return r.Name == own.Name }
		i := slices.IndexFunc(f.loaded, func(r rule) bool { return named(r) && same(r.Query, own.Query) })
		switch {
		case !slices.ContainsFunc(f.loaded, named):
			missing = appendOnce(missing, own.Name)
		case i < 0:
			other = appendOnce(other, own.Name)
		case f.loaded[i].Health == "err":
			broken = append(broken, own.Name+": "+f.loaded[i].LastError)
		}
	}
	load := "copy rules/recording.yml and rules/alerts.yml of this version to where rule_files points, then reload Prometheus"
	if len(missing) > 0 {
		out.add(Fail, "rules loaded", fmt.Sprintf("%d of %d are missing: %s", len(missing), len(f.ours), shortList(missing)), "nodes are not ranked, or alerts do not fire", load)
	}
	if len(other) > 0 {
		out.add(Warn, "rules current", "other expressions than in this version: "+shortList(other), "rules of another version, or changed by hand", load)
	}
	if len(broken) > 0 {
		out.add(Fail, "rules evaluated", shortList(broken), "these rules give nothing", "often two exporters with the same node: give each target its own label node")
	}
	if len(missing)+len(other)+len(broken) == 0 {
		out.ok("rules", fmt.Sprintf("all %d are loaded, current and evaluated", len(f.ours)))
	}
}

func (f prometheusFacts) judgeTargets(out *findings) {
	for _, job := range []string{"laxity-exporter", "laxity-actuator"} {
		var up, nameless int
		var down, coming []string
		for _, t := range f.targets {
			switch {
			case t.Labels["job"] != job:
			case t.Health == "unknown":
				coming = append(coming, t.ScrapeURL)
			case t.Health != "up":
				down = append(down, t.ScrapeURL+": "+t.LastError)
			default:
				up++
				if t.Labels["node"] == "" {
					nameless++
				}
			}
		}
		switch {
		case up+len(down) == 0 && len(coming) > 0:
			out.add(Warn, job, "not scraped yet: "+shortList(coming), "these nodes are not seen yet", "check again when its scrape interval is over")
		case up+len(down) == 0:
			out.add(Fail, job, "no scrape job of this name", "the rules read nothing, or do not notice that it is down", "scrape_configs as in compose/prometheus.yml; the job's name counts")
		case len(down) > 0:
			out.add(Fail, job, fmt.Sprintf("%d of %d targets are down: %s", len(down), up+len(down), shortList(down)), "these nodes are not seen", "start it there, or take the target out")
		case nameless > 0:
			out.add(Fail, job, fmt.Sprintf("%d of %d targets have no label node", nameless, up), "the rules distinguish nodes by it", "relabel_configs as in compose/prometheus.yml")
		default:
			out.ok(job, fmt.Sprintf("%d targets up", up))
		}
	}
}

func appendOnce(list []string, s string) []string {
	if slices.Contains(list, s) {
		return list
	}
	return append(list, s)
}

// shortList names the first few.
func shortList(list []string) string {
	const most = 4
	if len(list) <= most {
		return strings.Join(list, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(list[:most], ", "), len(list)-most)
}
