package docs_test

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/printer"
	"go/token"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/laxity/laxity/internal/reference"
)

// means says what each endpoint is for: program, then method and path. A new
// endpoint needs a line here.
var means = map[string]map[string]string{
	"Exporter": {
		"GET /":             "for people: links",
		"GET /metrics":      "for Prometheus",
		"GET /api/v1/tasks": "the present snapshot as JSON: GPUs, containers, unfinished and ended tasks, health; with `?watch=1` newline-delimited, one snapshot for each change and at least one a second",
		"PATCH /api/v1/containers/{id}": "`{\"deadline\":\"5s\",\"share\":\"30%\"}` changes settings of a running container (name or id); what is left out stays, `null` goes back to its label; " +
			"answers with the container as it is then, once the change is on disk",
		"GET /-/healthy": "200 while the process lives",
		"GET /-/ready":   "200 once GPUs and containers have been read, else 503",
		profiles:         "profiles of the program (`go tool pprof`), for clients on the same machine alone",
	},
	"Actuator": {
		"GET /":                 "for people: the live page, `?window=1m|5m|15m`, `&still=1` without updates",
		"GET /events":           "the sections of the live page that changed, as server-sent events",
		"GET /assets/{name}":    "its style, script and icon",
		"POST /actions/pause":   "a form of the live page: keep this container from computing",
		"POST /actions/release": "a form of the live page: release this container",
		"POST /actions/change":  "a form of the live page: change this container's `deadline`, `share` or both; an empty field goes back to its label",
		"GET /login":            "for people: the browser asks for the password (any user name, a token), then leads to the page",
		profiles:                "profiles of the program (`go tool pprof`), for clients on the same machine alone",
		"GET /metrics":          "for Prometheus",
		"POST /api/v1/alerts":   "Alertmanager's webhook, version 4; 2xx means durably accepted",
		"GET /api/v1/state":     "who is admitted, who waits, holds, leases, and whether it can act",
		"GET /api/v1/admission": "can a deadline or a share be kept by a container that does not run yet, beside what runs? `?deadline=9s&image=trainer:1&estimate=3s&share=30%&release=busy&gpu=UUID&node=NAME`; " +
			"`result` is `met`, `unmet` (with `reason` and `earliest_deadline_seconds`) or `unknown`",
		"GET /api/v1/decisions":                 "what was decided and why, oldest first: `?container=NAME&after=SEQUENCE&limit=N`; with `&watch=1` newline-delimited JSON that goes on",
		"POST /-/reload":                        "read the configuration file and nodes.yaml again; a bad file keeps the old one",
		"GET /-/healthy":                        "200; 503 and why once it has hung for 10 s and has to be restarted",
		"GET /-/ready":                          "200 while it can act, else 503 and why",
		"GET /api/v1/nodes":                     "the ranking, with reasons: `?deadline=9s&gpu_memory=4GiB&estimate=3s&ranking=predictive` (needs `--prometheus.url`, as all below)",
		"GET /api/v1/placements":                "the reservations",
		"POST /api/v1/placements":               "reserve a GPU for a container, or with `dry_run` only say which",
		"POST /api/v1/placements/{id}/check":    "does the place still hold? Asked right before a container is made",
		"PUT /api/v1/placements/{id}/container": "tell which container was made",
		"DELETE /api/v1/placements/{id}":        "give a reservation back",
		"GET /placements":                       "for people: the ranking and the reservations",
		"POST /api/v1/kubernetes/filter":        "kube-scheduler's extender: places a pod (`--kubernetes`)",
		"POST /api/v1/swarm/services":           "place a service on a Docker swarm (`--swarm`)",
	},
}

// profiles is what webserver.Profiler registers.
const profiles = "GET /debug/pprof/"

// endpoint is one that the code registers.
type endpoint struct{ program, pattern, restricted string }

var patternOf = regexp.MustCompile(`^(GET|PUT|POST|DELETE|PATCH) /`)

// endpoints reads them from the calls of Handle, HandleFunc and webserver.Profiler.
func endpoints(t *testing.T) (all []endpoint) {
	t.Helper()
	visit(t, func(path string, set *token.FileSet, file *ast.File) {
		ast.Inspect(file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok || len(call.Args) < 2 {
				return true
			}
			f, ok := call.Fun.(*ast.SelectorExpr)
			if ok && f.Sel.Name == "Profiler" {
				all = append(all, endpoint{program: programOf(path), pattern: profiles, restricted: "yes"})
			}
			lit, isText := call.Args[0].(*ast.BasicLit)
			if !ok || !isText || f.Sel.Name != "Handle" && f.Sel.Name != "HandleFunc" {
				return true
			}
			pattern, err := strconv.Unquote(lit.Value)
			if err != nil || !patternOf.MatchString(pattern) {
				return true
			}
			e := endpoint{program: programOf(path), pattern: strings.Replace(pattern, "{$}", "", 1)}
			var handler bytes.Buffer
			_ = printer.Fprint(&handler, set, call.Args[1])
			if regexp.MustCompile(`\b(Change|gate)\(`).Match(handler.Bytes()) {
				e.restricted = "yes"
			}
			all = append(all, e)
			return true
		})
	}, "exporter", "actuator", "cmd/laxity-actuator", "cmd/laxity-exporter")
	return all
}

// programOf says whose the file is.
func programOf(path string) string {
	if strings.HasPrefix(path, "exporter/") {
		return "Exporter"
	}
	return "Actuator"
}

func TestReferenceOfEndpoints(t *testing.T) {
	found := endpoints(t)
	var b strings.Builder
	b.WriteString("# Endpoints\n\nRestricted ones take a token or a password where one is configured (`laxity up` makes a token), and else only\nclients of the same machine; never a web page of another site. See [security](../security.md).\n")
	for _, program := range []string{"Exporter", "Actuator"} {
		port := map[string]int{"Exporter": 9870, "Actuator": 9871}[program]
		fmt.Fprintf(&b, "\n## %s, port %d\n\n| endpoint | restricted | meaning |\n|---|---|---|\n", program, port)
		missing := maps.Clone(means[program])
		for _, e := range found {
			if e.program != program {
				continue
			}
			text, ok := means[program][e.pattern]
			if !ok {
				t.Errorf("%s: %s has no description: write one in docs/endpoints_test.go", program, e.pattern)
			}
			delete(missing, e.pattern)
			fmt.Fprintf(&b, "| `%s` | %s | %s |\n", e.pattern, e.restricted, reference.Cell(text))
		}
		for _, pattern := range slices.Sorted(maps.Keys(missing)) {
			t.Errorf("%s: %s is described in docs/endpoints_test.go, and nobody registers it", program, pattern)
		}
	}
	reference.Keep(t, "endpoints.md", b.String())
}
