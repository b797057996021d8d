package swarm

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/docker/docker/api/types/swarm"
	"github.com/docker/docker/api/types/system"

	"github.com/laxity/laxity/actuator/placement"
)

// source is what the rules say.
type source struct {
	nodes []placement.Node
	err   error
}

func (s *source) Nodes(context.Context) ([]placement.Node, error) { return s.nodes, s.err }

func node(name string, score float64) placement.Node {
	return placement.Node{Name: name, Fresh: true, Provisionable: score > 0, Score: score, MemoryFree: uint64(score), Float: 1e6,
		GPUs: []placement.GPU{{UUID: "GPU-" + name, Provisionable: score > 0, Open: score > 0, MemoryFree: uint64(score), MemoryTotal: 1 << 40}}}
}

// shelf reserves by the paper's ranking, and keeps what is reserved.
type shelf struct {
	src      *source
	reserved []string // node, of what is not released
	asked    []string // nodes, the last time
}

func (h *shelf) Reserve(_ context.Context, among []string, req placement.Request) (Reserved, placement.Ranking, error) {
	h.asked = among
	nodes := slices.DeleteFunc(slices.Clone(h.src.nodes), func(n placement.Node) bool { return !slices.Contains(among, n.Name) })
	r := placement.Paper.Rank(nodes, req, start)
	best, ok := r.Best()
	if !ok || h.src.err != nil {
		return Reserved{}, r, h.src.err
	}
	h.reserved = append(h.reserved, best.Node.Name)
	return Reserved{ID: best.Node.Name, Node: best.Node.Name, GPU: best.GPU}, r, nil
}

func (h *shelf) Release(_ context.Context, id string) error {
	h.reserved = slices.DeleteFunc(h.reserved, func(node string) bool { return node == id })
	return nil
}

// fake is a manager.
type fake struct {
	manager bool
	nodes   []swarm.Node
	updates int
	refuse  error
	created []swarm.ServiceSpec
}

func (f *fake) Info(context.Context) (i system.Info, err error) {
	i.Swarm.ControlAvailable = f.manager
	return i, nil
}

func (f *fake) NodeList(context.Context, swarm.NodeListOptions) ([]swarm.Node, error) {
	out := append([]swarm.Node(nil), f.nodes...)
	for i := range out {
		out[i].Spec.Labels = maps.Clone(out[i].Spec.Labels)
	}
	return out, nil
}

func (f *fake) NodeUpdate(_ context.Context, id string, v swarm.Version, spec swarm.NodeSpec) error {
	if f.refuse != nil {
		return f.refuse
	}
	for i := range f.nodes {
		if f.nodes[i].ID == id {
			if f.nodes[i].Version != v {
				return errors.New("update out of sequence")
			}
			f.nodes[i].Spec, f.nodes[i].Version.Index = spec, v.Index+1
			f.updates++
		}
	}
	return nil
}

func (f *fake) ServiceCreate(_ context.Context, s swarm.ServiceSpec, _ swarm.ServiceCreateOptions) (swarm.ServiceCreateResponse, error) {
	if f.refuse != nil {
		return swarm.ServiceCreateResponse{}, f.refuse
	}
	f.created = append(f.created, s)
	return swarm.ServiceCreateResponse{ID: "s1"}, nil
}

func peer(id, host string) swarm.Node {
	n := swarm.Node{ID: id}
	n.Description.Hostname, n.Status.State, n.Spec.Availability = host, swarm.NodeStateReady, swarm.NodeAvailabilityActive
	return n
}

func make3(t *testing.T) (*fake, *source, *Swarm, *time.Time) {
	t.Helper()
	f := &fake{manager: true, nodes: []swarm.Node{peer("1", "a"), peer("2", "b"), peer("3", "host-c")}}
	f.nodes[2].Spec.Labels = map[string]string{LabelNode: "c"}
	src := &source{nodes: []placement.Node{node("a", 10<<30), node("b", 20<<30), node("c", 5<<30)}}
	now := start
	s, err := New(Options{Engine: f, Source: src, Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	return f, src, s, &now
}

func (f *fake) state() string {
	var out []string
	for _, n := range f.nodes {
		out = append(out, n.Spec.Labels[LabelProvisionable]+"/"+n.Spec.Labels[LabelRank])
	}
	return strings.Join(out, " ")
}

func TestStep(t *testing.T) {
	f, src, s, now := make3(t)
	step := func(want string, changed int, after time.Duration) {
		t.Helper()
		*now = now.Add(after)
		n, err := s.Step(t.Context())
		if (err != nil) != (src.err != nil) || n != changed || f.state() != want {
			t.Errorf("%d changed, %v: %s; want %d: %s", n, err, f.state(), changed, want)
		}
	}
	step("1/5 1/10 1/3", 3, 0)
	step("1/5 1/10 1/3", 0, time.Minute)
	src.err = errors.New("prometheus is down")
	step("1/5 1/10 1/3", 0, 20*time.Second)
	step("0/0 0/0 0/0", 3, 20*time.Second)
	src.err = nil
	step("0/0 0/0 0/0", 0, time.Second) // not settled
	step("1/5 1/10 1/3", 3, 20*time.Second)
	f.nodes[1].Status.State = swarm.NodeStateDown
	step("1/10 0/0 1/5", 3, time.Minute)
	if f.updates != 12 {
		t.Errorf("%d updates", f.updates)
	}
}

// A node that missed a deadline in the past is closed by the paper's ranking alone.
func TestAPastMissClosesNoNode(t *testing.T) {
	for method, want := range map[placement.Method]string{"": "1/10", placement.Predictive: "1/10", placement.Paper: "0/0"} {
		n := node("a", 10<<30)
		n.Provisionable, n.Score, n.GPUs[0].Provisionable = false, 0, false
		f := &fake{manager: true, nodes: []swarm.Node{peer("1", "a")}}
		s, err := New(Options{Engine: f, Source: &source{nodes: []placement.Node{n}}, Method: method, Now: func() time.Time { return start }})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Step(t.Context()); err != nil || f.state() != want {
			t.Errorf("%q: %s, %v; want %s", method, f.state(), err, want)
		}
	}
}

// Labels of before are left alone while nothing is known, and on a worker.
func TestLeavesAlone(t *testing.T) {
	f, src, s, _ := make3(t)
	f.nodes[0].Spec.Labels = labelled("1", "7")
	src.err = errors.New("prometheus is not up yet")
	if n, err := s.Step(t.Context()); n != 0 || err == nil {
		t.Errorf("%d %v", n, err)
	}
	f.manager, src.err = false, nil
	if n, err := s.Step(t.Context()); n != 0 || !errors.Is(err, ErrNoManager) {
		t.Errorf("%d %v", n, err)
	}
	f.manager, f.refuse = true, errors.New("update out of sequence")
	if n, err := s.Step(t.Context()); n != 0 || err == nil || f.updates != 0 {
		t.Errorf("%d %v", n, err)
	}
}

func TestDryRun(t *testing.T) {
	f, _, s, _ := make3(t)
	s.o.DryRun = true
	if n, err := s.Step(t.Context()); n != 3 || err != nil || f.updates != 0 {
		t.Errorf("%d %v %d", n, err, f.updates)
	}
}

func TestPlace(t *testing.T) {
	f, src, s, _ := make3(t)
	gpus := &shelf{src: src}
	req := placement.Request{Deadline: 9, GPUMemory: 4 << 30}
	spec := swarm.ServiceSpec{}
	spec.Name = "infer"
	spec.TaskTemplate.ContainerSpec = &swarm.ContainerSpec{Image: "img", Env: []string{"A=1", "NVIDIA_VISIBLE_DEVICES=all"}}
	spec.TaskTemplate.Placement = &swarm.Placement{Constraints: []string{"node.labels.zone==a"}}
	f.nodes[1].Status.State = swarm.NodeStateDown // b is the best, and dead
	p, err := s.Place(t.Context(), spec, req, gpus)
	if err != nil || p.Node != "a" || p.GPU != "GPU-a" || p.ID != "s1" || !slices.Equal(gpus.asked, []string{"a", "c"}) || !slices.Equal(gpus.reserved, []string{"a"}) {
		t.Fatalf("%+v %v, of %v reserved %v", p, err, gpus.asked, gpus.reserved)
	}
	c := f.created[0].TaskTemplate
	if got := strings.Join(c.Placement.Constraints, " "); got != "node.labels.zone==a node.id==1" {
		t.Errorf("constraints %s", got)
	}
	if got := strings.Join(c.ContainerSpec.Env, " "); got != "A=1 NVIDIA_VISIBLE_DEVICES=GPU-a" {
		t.Errorf("environment %s", got)
	}
	if l := c.ContainerSpec.Labels; l["laxity.deadline"] != "9s" || l["laxity.gpu-memory"] != "4294967296" {
		t.Errorf("labels %v", l)
	}
	if len(spec.TaskTemplate.Placement.Constraints) != 1 || len(spec.TaskTemplate.ContainerSpec.Labels) != 0 {
		t.Error("what was given is changed")
	}
	f.refuse = errors.New("no quorum")
	if _, err := s.Place(t.Context(), spec, req, gpus); !errors.Is(err, f.refuse) || len(gpus.reserved) != 0 {
		t.Errorf("refused: %v, reserved %v", err, gpus.reserved)
	}
	f.refuse, s.o.DryRun = nil, true
	if p, err := s.Place(t.Context(), spec, req, gpus); err != nil || p.Node != "a" || len(f.created) != 1 || len(gpus.reserved) != 0 {
		t.Errorf("dry run: %+v, %v, %d created, reserved %v", p, err, len(f.created), gpus.reserved)
	}
	s.o.DryRun = false
	req.GPUMemory = 1 << 40
	if _, err := s.Place(t.Context(), spec, req, gpus); !errors.Is(err, ErrNoNode) || !strings.Contains(err.Error(), "0/2 nodes") {
		t.Errorf("too large: %v", err)
	}
	two := uint64(2)
	spec.Mode.Replicated = &swarm.ReplicatedService{Replicas: &two}
	if _, err := s.Place(t.Context(), spec, req, nil); err == nil || !strings.Contains(err.Error(), "one replica") {
		t.Errorf("two replicas: %v", err)
	}
	if _, err := s.Place(t.Context(), swarm.ServiceSpec{}, req, nil); err == nil || !strings.Contains(err.Error(), "ContainerSpec") {
		t.Errorf("no container: %v", err)
	}
}

func TestHandler(t *testing.T) {
	f, src, s, _ := make3(t)
	const service = `"service":{"Name":"infer","TaskTemplate":{"ContainerSpec":{"Image":"img"}}}`
	for name, tc := range map[string]struct {
		body string
		err  error
		code int
		says string
	}{
		"placed":        {`{"deadline":"9s","gpu_memory":"4GiB",` + service + `}`, nil, 201, `"node":"b"`},
		"no JSON":       {`{`, nil, 400, "error"},
		"bad deadline":  {`{"deadline":"-1",` + service + `}`, nil, 400, "deadline"},
		"no container":  {`{"deadline":"9s"}`, nil, 400, "ContainerSpec"},
		"too large":     {`{"gpu_memory":"900GiB",` + service + `}`, nil, 409, "0/3 nodes"},
		"no Prometheus": {`{"deadline":"9s",` + service + `}`, errors.New("prometheus is down"), 503, "prometheus is down"},
	} {
		t.Run(name, func(t *testing.T) {
			src.err = tc.err
			before := len(f.created)
			w := httptest.NewRecorder()
			s.Handler(&shelf{src: src}).ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/api/v1/swarm/services", strings.NewReader(tc.body)))
			if w.Code != tc.code || !strings.Contains(w.Body.String(), tc.says) || (len(f.created) > before) != (tc.code == 201) {
				t.Errorf("%d %s, %d created", w.Code, w.Body, len(f.created)-before)
			}
		})
	}
}
