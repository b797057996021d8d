package kubernetes

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-chi/chi/v5"
	"pgregory.net/rapid"

	"github.com/laxity/laxity/actuator/placement"
	"github.com/laxity/laxity/exporter/task"
)

var update = flag.Bool("update", false, "write the golden answers anew")

var now = time.Unix(1_800_000_000, 0)

// fakePlacer places by the paper's ranking of its nodes, and notes what it was asked.
type fakePlacer struct {
	nodes []placement.Node
	err   error
	asked []Question
	// forgotten are the pods that ask for nothing.
	forgotten []Question
}

func (p *fakePlacer) Forget(_ context.Context, q Question) error {
	p.forgotten = append(p.forgotten, q)
	return p.err
}

func (p *fakePlacer) Place(_ context.Context, q Question) (string, placement.Ranking, error) {
	p.asked = append(p.asked, q)
	if p.err != nil {
		return "", nil, p.err
	}
	among := slices.DeleteFunc(slices.Clone(p.nodes), func(n placement.Node) bool { return !slices.Contains(q.Nodes, n.Name) })
	r := placement.Paper.Rank(among, q.Request, now)
	best, _ := r.Best()
	return best.Node.Name, r, nil
}

func gpu(uuid string, free uint64) placement.GPU {
	return placement.GPU{UUID: uuid, Provisionable: true, Open: true, MemoryFree: free << 30, MemoryTotal: 80 << 30, Utilization: 0.5}
}

func fleet() []placement.Node {
	node := func(name string, gpus ...placement.GPU) placement.Node {
		return placement.Node{Name: name, Fresh: true, Provisionable: true, Float: 100, GPUs: gpus, Seen: now}
	}
	stale := node("n3", gpu("a", 80))
	stale.Fresh, stale.Seen = false, now.Add(-95*time.Second)
	busy := gpu("b", 1)
	busy.Provisionable, busy.Utilization = false, 1
	missed := gpu("a", 70)
	missed.Provisionable = false
	return []placement.Node{node("n1", gpu("a", 20), gpu("b", 60)), node("n2", gpu("a", 12)), stale,
		node("n4", gpu("a", 2), gpu("c", 2), busy), node("n5", missed)}
}

func post(t *testing.T, p Placer, body []byte) *httptest.ResponseRecorder {
	t.Helper()
	w := httptest.NewRecorder()
	mux := chi.NewRouter()
	Register(mux, func(h http.Handler) http.Handler { return h }, p, slog.New(slog.DiscardHandler))
	mux.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/api/v1/kubernetes/filter", bytes.NewReader(body)))
	return w
}

// The questions are written with Kubernetes' own types by the module `published`,
// which reads our answers with them too.
func TestGolden(t *testing.T) {
	questions, _ := filepath.Glob("testdata/*.question.json")
	if len(questions) < 6 {
		t.Fatalf("questions = %v", questions)
	}
	for _, path := range questions {
		name := strings.TrimSuffix(filepath.Base(path), ".question.json")
		t.Run(name, func(t *testing.T) {
			question, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			w := post(t, &fakePlacer{nodes: fleet()}, question)
			var got bytes.Buffer
			if err := json.Indent(&got, w.Body.Bytes(), "", " "); w.Code != http.StatusOK || err != nil {
				t.Fatalf("%d %v %s", w.Code, err, w.Body)
			}
			file := filepath.Join("testdata", name+".answer.json")
			if *update {
				if err := os.WriteFile(file, got.Bytes(), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(want, got.Bytes()) {
				t.Errorf("%s: got %s", file, got.String())
			}
		})
	}
}

// TestQuestionToPlacer: the placer is asked about the pod, what it asks for, and the nodes that are left.
func TestQuestionToPlacer(t *testing.T) {
	want := Question{
		Request: placement.Request{Deadline: 9, GPUMemory: 4 << 30}, Image: "registry.example/model:1",
		Namespace: "team", Pod: "infer", UID: "7a0c", Nodes: []string{"n1", "n2", "n3", "n4", "n5", "elsewhere"},
	}
	for _, name := range []string{"names", "nodes"} {
		question, err := os.ReadFile("testdata/" + name + ".question.json")
		if err != nil {
			t.Fatal(err)
		}
		p := &fakePlacer{nodes: fleet()}
		if post(t, p, question); len(p.asked) != 1 || !reflect.DeepEqual(p.asked[0], want) {
			t.Errorf("%s: asked %+v", name, p.asked)
		}
	}
}

func TestRequestOf(t *testing.T) {
	for name, tc := range map[string]struct {
		annotations, labels map[string]string
		want                placement.Request
		invalid             int
	}{
		"annotations":                     {map[string]string{"laxity.dev/deadline": "9s", "laxity.dev/gpu-memory": "4GiB"}, nil, placement.Request{Deadline: 9, GPUMemory: 4 << 30}, 0},
		"labels":                          {nil, map[string]string{"laxity.deadline": "250ms"}, placement.Request{Deadline: 0.25}, 0},
		"the annotation comes first":      {map[string]string{"laxity.dev/deadline": "9s"}, map[string]string{"laxity.deadline": "1s"}, placement.Request{Deadline: 9}, 0},
		"what cannot be read is not":      {map[string]string{"laxity.dev/deadline": "soon", "laxity.dev/gpu-memory": "4GiB"}, map[string]string{"laxity.deadline": "1s"}, placement.Request{GPUMemory: 4 << 30}, 1},
		"a share asks for no node":        {map[string]string{"laxity.dev/share": "30%", "laxity.dev/class": "batch"}, nil, placement.Request{}, 0},
		"Docker's label as an annotation": {map[string]string{"laxity.deadline": "9s"}, nil, placement.Request{}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			req, ours, invalid := RequestOf(&Pod{Metadata: Metadata{Annotations: tc.annotations, Labels: tc.labels}})
			if req != tc.want || ours != (tc.want != placement.Request{}) || len(invalid) != tc.invalid {
				t.Errorf("%+v, ours %v, %v", req, ours, invalid)
			}
		})
	}
}

func TestBadQuestions(t *testing.T) {
	good, err := os.ReadFile("testdata/names.question.json")
	if err != nil {
		t.Fatal(err)
	}
	down := &fakePlacer{err: errors.New("prometheus is down")}
	for name, tc := range map[string]struct {
		placer Placer
		body   string
		code   int
		says   string
	}{
		"no JSON":             {&fakePlacer{}, "{", 400, "ExtenderArgs"},
		"no pod":              {&fakePlacer{}, `{"NodeNames":["a"]}`, 400, "no Pod"},
		"node without a name": {&fakePlacer{}, `{"Pod":{"metadata":{"labels":{"laxity.deadline":"9s"}}},"Nodes":{"items":[{}]}}`, 200, "metadata.name"},
		"down":                {down, string(good), 200, `"Error":"laxity: prometheus is down"`},
	} {
		t.Run(name, func(t *testing.T) {
			w := post(t, tc.placer, []byte(tc.body))
			if w.Code != tc.code || !strings.Contains(w.Body.String(), tc.says) {
				t.Errorf("%d %s", w.Code, w.Body)
			}
		})
	}
}

// A pod that is not ours goes wherever it likes, even while nothing works. What was reserved for an earlier one of
// its name ends.
func TestForeignPod(t *testing.T) {
	r := &fakePlacer{err: errors.New("down")}
	w := post(t, r, []byte(`{"Pod":{"metadata":{"name":"web","namespace":"team","uid":"7a0c"}},"NodeNames":["a","b"]}`))
	if len(r.asked) != 0 || !strings.Contains(w.Body.String(), `"NodeNames":["a","b"]`) || !strings.Contains(w.Body.String(), `"Error":""`) {
		t.Errorf("asked %d times: %s", len(r.asked), w.Body)
	}
	if len(r.forgotten) != 1 || r.forgotten[0].Namespace != "team" || r.forgotten[0].Pod != "web" || r.forgotten[0].UID != "7a0c" {
		t.Errorf("forgotten: %+v", r.forgotten)
	}
}

// Whatever is asked: each node is kept or failed, once; where one of Laxity's can take the pod the best one
// is kept alone, and otherwise those that Laxity does not know.
func TestAnswer(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var nodes []placement.Node
		names := []string{"unknown", "another"}
		for i := range rapid.IntRange(0, 12).Draw(t, "nodes") {
			n := placement.Node{Name: string(rune('a' + i)), Fresh: rapid.Bool().Draw(t, "fresh"), Float: task.Seconds(rapid.SampledFrom([]float64{1, 50, math.Inf(1)}).Draw(t, "float"))}
			for j := range rapid.IntRange(0, 3).Draw(t, "gpus") {
				g := gpu(string(rune('0'+j)), uint64(rapid.IntRange(0, 80).Draw(t, "free")))
				g.Provisionable = rapid.Bool().Draw(t, "provisionable")
				n.GPUs = append(n.GPUs, g)
			}
			nodes, names = append(nodes, n), append(names, n.Name)
		}
		names = rapid.Permutation(names).Draw(t, "asked")[:rapid.IntRange(0, len(names)).Draw(t, "count")]
		p := &fakePlacer{nodes: nodes}
		args := Args{Pod: &Pod{Metadata: Metadata{Annotations: map[string]string{"laxity.dev/gpu-memory": "10GiB"}}}, NodeNames: &names}
		f, err := extender{placer: p, log: slog.New(slog.DiscardHandler)}.result(t.Context(), args)
		if err != nil {
			t.Fatal(err)
		}
		if n := len(*f.NodeNames) + len(f.FailedNodes) + len(f.FailedAndUnresolvableNodes); n != len(names) {
			t.Fatalf("%d nodes asked, %d answered: %+v", len(names), n, f)
		}
		best, _, _ := p.Place(t.Context(), p.asked[0])
		want := []string{best}
		if best == "" {
			want = slices.DeleteFunc(slices.Clone(names), func(name string) bool { return name != "unknown" && name != "another" })
		}
		if !slices.Equal(*f.NodeNames, want) {
			t.Fatalf("kept %v, want %v", *f.NodeNames, want)
		}
	})
}

// Questions are large: nobody's is read who may not ask, nor more than two at a time.
func TestQuestionsAreGuarded(t *testing.T) {
	refuse := func(http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) })
	}
	mux := chi.NewRouter()
	Register(mux, refuse, &fakePlacer{}, slog.New(slog.DiscardHandler))
	body := strings.NewReader("{}")
	w := httptest.NewRecorder()
	if mux.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/api/v1/kubernetes/filter", body)); w.Code != http.StatusUnauthorized || body.Len() != 2 {
		t.Errorf("%d, and %d bytes are left", w.Code, body.Len())
	}
}

func TestFewQuestionsAtATime(t *testing.T) {
	mux := chi.NewRouter()
	Register(mux, func(h http.Handler) http.Handler { return h }, &fakePlacer{}, slog.New(slog.DiscardHandler))
	ask := func(body io.Reader) string {
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/api/v1/kubernetes/filter", body))
		return fmt.Sprint(w.Code, " ", w.Body)
	}
	var writers []*io.PipeWriter
	answered := make(chan string, maxQuestions)
	for range maxQuestions {
		r, w := io.Pipe()
		go func() { answered <- ask(r) }()
		if _, err := io.WriteString(w, "{"); err != nil { // it is being read
			t.Fatal(err)
		}
		writers = append(writers, w)
	}
	// Another code than 200 would show the scheduler's users our address, which has the token in it.
	if got := ask(strings.NewReader("{}")); !strings.HasPrefix(got, "200 ") || !strings.Contains(got, "2 other questions are being answered") {
		t.Errorf("one more: %s", got)
	}
	for _, w := range writers {
		_ = w.Close()
		<-answered
	}
	if got := ask(strings.NewReader("{}")); !strings.HasPrefix(got, "400 ") {
		t.Errorf("the others are answered, and one more is not: %s", got)
	}
}
