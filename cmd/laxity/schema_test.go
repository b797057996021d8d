package main

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/invopop/jsonschema"
	validator "github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/laxity/laxity/actuator/admission"
	"github.com/laxity/laxity/actuator/decision"
	"github.com/laxity/laxity/actuator/placement/api"
	"github.com/laxity/laxity/actuator/state"
	"github.com/laxity/laxity/cmd/internal/event"
	"github.com/laxity/laxity/cmd/internal/view"
	"github.com/laxity/laxity/exporter/task"
	"github.com/laxity/laxity/internal/access"
	"github.com/laxity/laxity/internal/reference"
)

// printed is what programs print or answer as JSON, by the name of its schema.
var printed = map[string]struct {
	of    any
	about string
}{
	"tasks":      {task.Snapshot{}, "What GET /api/v1/tasks of the exporter answers; with ?watch=1 one a line."},
	"state":      {state.State{}, "What GET /api/v1/state of the actuator answers."},
	"decisions":  {[]decision.Decision{}, "What GET /api/v1/decisions of the actuator answers; with ?watch=1 one decision a line."},
	"nodes":      {api.Nodes{}, "What GET /api/v1/nodes of the actuator answers, and laxity nodes --json prints."},
	"placements": {[]api.Placement{}, "What GET /api/v1/placements of the actuator answers, and laxity placements --json prints."},
	"ps":         {[]view.Row{}, "What laxity ps --json and laxity top --json print."},
	"admission":  {admission.Answer{}, "What GET /api/v1/admission of the actuator answers."},
	"event":      {event.Event{}, "A line of laxity events --json."},
	"why":        {explanation{}, "What laxity why --json prints."},
}

// schemaOf is the JSON Schema of one of them, from its Go type and the comments there.
func schemaOf(t *testing.T, name string) []byte {
	t.Helper()
	r := jsonschema.Reflector{ExpandedStruct: true, Mapper: func(of reflect.Type) *jsonschema.Schema {
		if of == reflect.TypeFor[task.Seconds]() || of == reflect.TypeFor[task.Ratio]() { // null: a field beside it says why
			return &jsonschema.Schema{OneOf: []*jsonschema.Schema{{Type: "number"}, {Type: "null"}}}
		}
		return nil
	}}
	before, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(reference.Root())
	for _, folder := range []string{"exporter/task", "actuator/state", "actuator/decision", "actuator/admission", "actuator/placement", "actuator/enforce", "actuator/lease", "cmd/internal/view", "cmd/internal/event"} {
		if err := r.AddGoComments("github.com/laxity/laxity", "./"+folder); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(before)
	s := r.Reflect(printed[name].of)
	s.ID = "https://github.com/laxity/laxity/docs/reference/json/" + jsonschema.ID(name) + ".schema.json"
	s.Title, s.Description = name, printed[name].about
	text, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	return append(text, '\n')
}

// The schemas are what the code says: make docs writes them.
func TestReferenceOfJSON(t *testing.T) {
	dir := filepath.Join(reference.Root(), "docs", "reference", "json")
	for name := range printed {
		path, want := filepath.Join(dir, name+".schema.json"), schemaOf(t, name)
		if os.Getenv("LAXITY_DOCS") == "write" {
			if err := os.MkdirAll(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, want, 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s is not what the code says any more (%v): run `make docs` and commit what it writes", path, err)
		}
	}
}

// conforms checks real output against the schema in docs/reference/json.
func conforms(t *testing.T, name, output string) {
	t.Helper()
	schema, err := validator.NewCompiler().Compile(filepath.Join(reference.Root(), "docs", "reference", "json", name+".schema.json"))
	if err != nil {
		t.Fatal(err)
	}
	value, err := validator.UnmarshalJSON(strings.NewReader(output))
	if err != nil {
		t.Fatalf("%s: %v in %s", name, err, output)
	}
	if err := schema.Validate(value); err != nil {
		t.Errorf("%s: %#v\n%s", name, err, output)
	}
}

// refusesToConform fails where the schema lets through what it must not.
func refusesToConform(t *testing.T, name, output string) {
	t.Helper()
	schema, err := validator.NewCompiler().Compile(filepath.Join(reference.Root(), "docs", "reference", "json", name+".schema.json"))
	if err != nil {
		t.Fatal(err)
	}
	value, err := validator.UnmarshalJSON(strings.NewReader(output))
	if err != nil {
		t.Fatal(err)
	}
	if schema.Validate(value) == nil {
		t.Errorf("the schema of %s lets %s through", name, output)
	}
}

// get returns an answer to who has the token in a file.
func get(t *testing.T, address, tokenFile string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, nil)
	if err != nil {
		t.Fatal(err)
	}
	tokens, err := access.ReadTokens(tokenFile)
	if err != nil || len(tokens) == 0 {
		t.Fatal(tokens, err)
	}
	req.Header.Set("Authorization", "Bearer "+tokens[0])
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatal(resp.Status, err, string(text))
	}
	return string(text)
}

// conformsAll checks all that laxity up and the commands say while container runs there.
func conformsAll(t *testing.T, exporter, actuator, tokenFile, container string) {
	t.Helper()
	flags := []string{"--exporter.url=http://" + exporter, "--actuator.url=http://" + actuator, "--json"}
	conforms(t, "tasks", get(t, "http://"+exporter+"/api/v1/tasks", tokenFile))
	conforms(t, "state", get(t, "http://"+actuator+"/api/v1/state", tokenFile))
	conforms(t, "decisions", get(t, "http://"+actuator+"/api/v1/decisions", tokenFile))
	conforms(t, "nodes", get(t, "http://"+actuator+"/api/v1/nodes", tokenFile))
	_, ps, _ := laxity(append([]string{"ps", "--all"}, flags...)...)
	conforms(t, "ps", ps)
	if !strings.Contains(ps, container) {
		t.Errorf("ps has no %s: %s", container, ps)
	}
	_, lines, _ := laxity(append([]string{"events"}, flags...)...)
	for line := range strings.Lines(lines) {
		conforms(t, "event", line)
	}
	if container != "" {
		_, why, _ := laxity("why", container, "--actuator.url=http://"+actuator, "--json")
		conforms(t, "why", why)
		for _, question := range []string{"deadline=9s&estimate=1s", "deadline=1s&estimate=9s", "deadline=9s&image=never-seen", "share=30%25"} {
			conforms(t, "admission", get(t, "http://"+actuator+"/api/v1/admission?"+question, tokenFile))
		}
	}
}

// Output without containers keeps to the schemas; with containers TestDoor checks it.
func TestJSONConforms(t *testing.T) {
	if testing.Short() {
		t.Skip("starts laxity up")
	}
	u := startUp(t)
	if nodes := get(t, "http://"+u.actuator+"/api/v1/nodes", u.token); !strings.Contains(nodes, `"fresh":true`) {
		t.Errorf("it listens, and does not know its node yet: %s", nodes)
	}
	conformsAll(t, u.exporter, u.actuator, u.token, "")
	conforms(t, "ps", `[{"container":"web","container_id":"1","state":"running","float_seconds":null,"float_reason":"its task has no deadline","tasks":1,"gpu_index":0,"hits":0,"misses":0,"memory_used_bytes":1}]`)
	refusesToConform(t, "ps", `[{"container":"web","container_id":"1","state":"running","float_seconds":"+Inf","tasks":1,"gpu_index":0,"hits":0,"misses":0,"memory_used_bytes":1}]`)
	refusesToConform(t, "ps", `[{"container":"web"}]`)
	conforms(t, "admission", `{"result":"unmet","reason":"it takes 9s with the GPU to itself, and is due in 1s","node":"n","gpu":"GPU-1","earliest_deadline_seconds":9.1}`)
	refusesToConform(t, "admission", `{"reason":"it is too long"}`)
	refusesToConform(t, "admission", `{"result":"met","earliest_deadline_seconds":"9s"}`)
	refusesToConform(t, "event", `{"time":"2026-03-01T12:00:00Z","kind":"began","text":"x","colour":"red"}`)
}
