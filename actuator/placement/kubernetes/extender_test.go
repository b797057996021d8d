package kubernetes

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
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

type ranker struct {
	nodes []placement.Node
	err   error
	asked int
}

func (r *ranker) Rank(_ context.Context, req placement.Request) (placement.Ranking, error) {
	r.asked++
	return placement.Paper.Rank(r.nodes, req, now), r.err
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

func post(t *testing.T, r Ranker, path string, body []byte) *httptest.ResponseRecorder {
	t.Helper()
	w := httptest.NewRecorder()
	mux := chi.NewRouter()
	Register(mux, func(h http.Handler) http.Handler { return h }, r, slog.New(slog.DiscardHandler))
	mux.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/api/v1/kubernetes/"+path, bytes.NewReader(body)))
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
		for _, verb := range []string{"filter", "prioritize"} {
			if name == "invalid" && verb == "prioritize" {
				continue // it has no answer but a status
			}
			t.Run(name+"/"+verb, func(t *testing.T) {
				question, err := os.ReadFile(path)
				if err != nil {
					t.Fatal(err)
				}
				w := post(t, &ranker{nodes: fleet()}, verb, question)
				var got bytes.Buffer
				if err := json.Indent(&got, w.Body.Bytes(), "", " "); w.Code != http.StatusOK || err != nil {
					t.Fatalf("%d %v %s", w.Code, err, w.Body)
				}
				file := filepath.Join("testdata", name+"."+verb+".answer.json")
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
}

func TestBadQuestions(t *testing.T) {
	good, err := os.ReadFile("testdata/names.question.json")
	if err != nil {
		t.Fatal(err)
	}
	invalid, err := os.ReadFile("testdata/invalid.question.json")
	if err != nil {
		t.Fatal(err)
	}
	down := &ranker{err: errors.New("prometheus is down")}
	for name, tc := range map[string]struct {
		ranker Ranker
		verb   string
		body   string
		code   int
		says   string
	}{
		"no JSON":               {&ranker{}, "filter", "{", 400, "ExtenderArgs"},
		"no pod":                {&ranker{}, "filter", `{"NodeNames":["a"]}`, 400, "no Pod"},
		"node without a name":   {&ranker{}, "filter", `{"Pod":{"metadata":{"labels":{"laxity.deadline":"9s"}}},"Nodes":{"items":[{}]}}`, 200, "metadata.name"},
		"down, filter":          {down, "filter", string(good), 200, `"Error":"laxity: prometheus is down"`},
		"down, prioritize":      {down, "prioritize", string(good), 503, "prometheus is down"},
		"bad label, prioritize": {&ranker{}, "prioritize", string(invalid), 400, "laxity.deadline"},
	} {
		t.Run(name, func(t *testing.T) {
			w := post(t, tc.ranker, tc.verb, []byte(tc.body))
			if w.Code != tc.code || !strings.Contains(w.Body.String(), tc.says) {
				t.Errorf("%d %s", w.Code, w.Body)
			}
		})
	}
}

// A pod that is not ours goes wherever it likes, even while Prometheus is down.
func TestForeignPod(t *testing.T) {
	r := &ranker{err: errors.New("down")}
	w := post(t, r, "filter", []byte(`{"Pod":{"metadata":{"name":"web"}},"NodeNames":["a","b"]}`))
	if r.asked != 0 || !strings.Contains(w.Body.String(), `"NodeNames":["a","b"]`) {
		t.Errorf("asked %d times: %s", r.asked, w.Body)
	}
}

// Whatever is asked: each node is kept or failed, once, and never changed; what
// is kept is what the ranking takes, and only that has a priority.
func TestFilterAndPrioritizeAgree(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var nodes []placement.Node
		names := []string{"unknown"}
		for i := range rapid.IntRange(0, 12).Draw(t, "nodes") {
			n := placement.Node{Name: string(rune('a' + i)), Fresh: rapid.Bool().Draw(t, "fresh"), Float: task.Seconds(rapid.SampledFrom([]float64{1, 50, math.Inf(1)}).Draw(t, "float"))}
			for j := range rapid.IntRange(0, 3).Draw(t, "gpus") {
				g := gpu(string(rune('0'+j)), uint64(rapid.IntRange(0, 80).Draw(t, "free")))
				g.Provisionable = rapid.Bool().Draw(t, "provisionable")
				n.GPUs = append(n.GPUs, g)
			}
			nodes, names = append(nodes, n), append(names, n.Name)
		}
		asked := rapid.Permutation(names).Draw(t, "asked")[:rapid.IntRange(0, len(names)).Draw(t, "count")]
		ranking := placement.Paper.Rank(nodes, placement.Request{Deadline: 9, GPUMemory: 10 << 30}, now)
		args := Args{Pod: &Pod{}, NodeNames: &asked}
		f, err := filter(args, ranking)
		if err != nil {
			t.Fatal(err)
		}
		list, err := prioritize(args, ranking)
		if err != nil || len(list) != len(asked) {
			t.Fatalf("%d priorities for %d nodes, %v", len(list), len(asked), err)
		}
		if n := len(*f.NodeNames) + len(f.FailedNodes) + len(f.FailedAndUnresolvableNodes); n != len(asked) {
			t.Fatalf("%d nodes asked, %d answered: %+v", len(asked), n, f)
		}
		kept := map[string]bool{}
		for _, n := range *f.NodeNames {
			kept[n] = true
		}
		score := map[string]int64{}
		for i, p := range list {
			score[p.Host] = p.Score
			if p.Host != asked[i] || p.Score > MaxPriority || (p.Score > 0) != kept[p.Host] {
				t.Fatalf("priority %+v of node %s, kept %v", p, asked[i], kept[p.Host])
			}
		}
		last := int64(MaxPriority)
		for _, v := range ranking {
			if kept[v.Node.Name] {
				if score[v.Node.Name] > last {
					t.Fatalf("%s has a higher priority than one before it", v.Node.Name)
				}
				last = score[v.Node.Name]
			}
		}
	})
}

// Questions are large: nobody's is read who may not ask, nor more than two at a time.
func TestQuestionsAreGuarded(t *testing.T) {
	guarded := 0
	refuse := func(http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { guarded++; w.WriteHeader(http.StatusUnauthorized) })
	}
	for _, path := range []string{"filter", "prioritize"} {
		mux := chi.NewRouter()
		Register(mux, refuse, &ranker{}, slog.New(slog.DiscardHandler))
		body := strings.NewReader("{}")
		w := httptest.NewRecorder()
		if mux.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/api/v1/kubernetes/"+path, body)); w.Code != http.StatusUnauthorized || body.Len() != 2 {
			t.Errorf("%s: %d, and %d bytes are left", path, w.Code, body.Len())
		}
	}
	if guarded != 2 {
		t.Errorf("%d of 2 were guarded", guarded)
	}
}

func TestFewQuestionsAtATime(t *testing.T) {
	mux := chi.NewRouter()
	Register(mux, func(h http.Handler) http.Handler { return h }, &ranker{}, slog.New(slog.DiscardHandler))
	ask := func(body io.Reader) int {
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/api/v1/kubernetes/filter", body))
		return w.Code
	}
	var writers []*io.PipeWriter
	answered := make(chan int, maxQuestions)
	for range maxQuestions {
		r, w := io.Pipe()
		go func() { answered <- ask(r) }()
		if _, err := io.WriteString(w, "{"); err != nil { // it is being read
			t.Fatal(err)
		}
		writers = append(writers, w)
	}
	if code := ask(strings.NewReader("{}")); code != http.StatusServiceUnavailable {
		t.Errorf("one more: %d", code)
	}
	for _, w := range writers {
		_ = w.Close()
		<-answered
	}
	if code := ask(strings.NewReader("{}")); code == http.StatusServiceUnavailable {
		t.Errorf("the others are answered, and one more is not: %d", code)
	}
}
