package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/laxity/laxity/actuator/decision"
	"github.com/laxity/laxity/actuator/state"
	"github.com/laxity/laxity/exporter/task"
)

// What strangers write, names of containers and of alerts, errors and reasons,
// reaches the terminal as text: it moves no cursor, forges no line and hides nothing.
func TestStrangersCannotDriveTheTerminal(t *testing.T) {
	const evil = "web\x1b[2J\x1b]0;pwned\x07\r\nFORGED  9s  running\u202e\u009b8m"
	snapshot := task.Snapshot{
		Sequence: 1, Time: time.Now(), Node: evil,
		GPUs:       []task.GPU{{UUID: evil, Name: evil, MemoryTotal: 1, Error: evil}},
		Containers: []task.Container{{ID: "0123456789abcdef", Name: evil, Spec: task.Spec{Managed: true, Deadline: 9}}},
		Tasks:      []task.Task{{ContainerID: "0123456789abcdef", GPUs: []string{evil}, State: task.State(evil)}},
		Health:     task.Health{DeviceError: evil, EngineError: evil},
	}
	state := state.State{
		Trouble: evil, Breaker: evil,
		Containers: []state.Container{{ID: "0123456789abcdef", Name: evil, Waits: evil, MemoryAsked: evil, Order: evil, Off: true}},
		GPUs:       []state.GPU{{UUID: evil, Order: []string{evil}, Queue: []string{evil}, Admitted: []string{evil}}},
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var answer any
		switch r.URL.Path {
		case "/api/v1/tasks":
			answer = snapshot
		case "/api/v1/state":
			answer = state
		case "/api/v1/decisions":
			answer = []decision.Decision{{Kind: decision.Kind(evil), Alert: evil, By: evil, Reason: evil, Error: evil, Container: evil}}
		case "/api/v1/nodes":
			answer = map[string]any{"summary": evil, "ranking": evil, "nodes": []any{map[string]any{"name": evil, "reasons": []any{map[string]any{"text": evil}}}}}
		case "/api/v1/placements":
			answer = []any{map[string]any{"id": evil, "node": evil, "gpu": evil, "state": evil, "container": evil}}
		default:
			w.WriteHeader(http.StatusConflict)
			answer = map[string]string{"error": evil, "hint": evil}
		}
		_ = json.NewEncoder(w).Encode(answer)
	}))
	defer server.Close()
	t.Setenv("LAXITY_EXPORTER_URL", server.URL)
	t.Setenv("LAXITY_ACTUATOR_URL", server.URL)
	for _, args := range [][]string{
		{"ps"}, {"ps", "--json"}, {"top", "--once"}, {"why", evil}, {"why", "0123456789abcdef"}, {"why", "--json", "0123456789abcdef"},
		{"nodes"}, {"nodes", "--json"}, {"placements"}, {"deadline", evil, "5s"}, {"share", evil, "30%"}, {"share", "web", evil}, {"deadline", "web", evil}, {evil}, {"ps", "--" + evil},
		{"ps", "--exporter.url=" + evil}, {"up", "--device=sim", "--rules=" + evil}, {"run", evil},
	} {
		_, stdout, stderr := laxity(args...)
		for _, printed := range []string{stdout, stderr} {
			if i := strings.IndexFunc(printed, func(r rune) bool { return r != '\n' && r != '\t' && !unicode.IsPrint(r) }); i >= 0 {
				t.Errorf("%q prints %q", args, printed[i:])
			}
			for line := range strings.Lines(printed) {
				if strings.HasPrefix(line, "FORGED") && (args[0] == "ps" || args[0] == "top" || args[0] == "why" || args[0] == "nodes") {
					t.Errorf("%q prints a line that a stranger wrote: %q", args, line)
				}
			}
		}
	}
}
