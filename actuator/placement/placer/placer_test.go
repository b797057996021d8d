package placer_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/laxity/laxity/actuator/placement"
	"github.com/laxity/laxity/actuator/placement/placer"
	"github.com/laxity/laxity/actuator/placement/reservation"
	"github.com/laxity/laxity/exporter/task"
)

const gib = 1 << 30

// world is a cluster that a test changes, and a clock.
type world struct {
	mu      sync.Mutex
	now     time.Time
	nodes   []placement.Node
	tenants map[string]placer.Tenant
	pods    map[placer.PodOn]placer.Use
	err     error
	history map[string]task.Seconds
	// short: nodes are read by short lists.
	short bool
	asked []placer.Ask
	// reads, if not nil, receives a channel for each reading, which lasts until that is closed.
	reads chan chan struct{}
}

func (w *world) Facts(ctx context.Context, ask placer.Ask) (placer.Facts, error) {
	w.read(ctx)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.asked = append(w.asked, ask)
	f := placer.Facts{Nodes: w.nodes, Tenants: w.known(ask.Containers)}
	if w.short && !ask.All {
		f.Nodes, f.Rest = w.some(ask)
	}
	return f, w.err
}

// read waits until the test lets it end.
func (w *world) read(ctx context.Context) {
	if w.reads != nil {
		end := make(chan struct{})
		w.reads <- end
		select {
		case <-end:
		case <-ctx.Done():
		}
	}
}

// some does what a source does for a large fleet.
func (w *world) some(ask placer.Ask) ([]placement.Node, *placement.Rest) {
	rest := &placement.Rest{Free: math.MaxUint64}
	names := map[string]bool{}
	for _, name := range ask.Nodes {
		names[name] = true
	}
	if l := ask.List; l != nil {
		*rest = placement.Rest{For: l.For}
		nodes, idle := w.nodes, l.Method == placement.Predictive && !l.Busy
		if idle {
			rest.For.Deadline, rest.For.Estimate = 0, 0
			nodes = nil
			for _, n := range w.nodes {
				n.GPUs = slices.DeleteFunc(slices.Clone(n.GPUs), func(g placement.GPU) bool { return len(g.Work) > 0 })
				nodes = append(nodes, n)
			}
		}
		r := l.Method.Rank(nodes, rest.For, w.now)
		r = slices.DeleteFunc(r, func(v placement.Verdict) bool { return !v.Candidate() })
		full := len(r) >= l.Limit
		r = r[:min(len(r), l.Limit)]
		for _, v := range r {
			names[v.Node.Name] = true
		}
		switch {
		case !full:
			rest.None, rest.Busy = !idle, l.Busy
		case !l.Busy:
			rest.Free = r[len(r)-1].Node.GPUs[0].MemoryFree
		default:
			rest.Busy, rest.Float, rest.Demand = true, task.Seconds(r[len(r)-1].Score), task.Seconds(r[len(r)-1].Load)
		}
	}
	return slices.DeleteFunc(slices.Clone(w.nodes), func(n placement.Node) bool { return !names[n.Name] }), rest
}

func (w *world) known(containers map[string][]string) map[string]placer.Tenant {
	out := map[string]placer.Tenant{}
	for _, ids := range containers {
		for _, id := range ids {
			if t, ok := w.tenants[id]; ok {
				out[id] = t
			}
		}
	}
	return out
}

func (w *world) Tenants(_ context.Context, containers map[string][]string) (map[string]placer.Tenant, map[string]bool, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	fresh := map[string]bool{}
	for _, n := range w.nodes {
		fresh[n.Name] = n.Fresh
	}
	return w.known(containers), fresh, w.err
}

func (w *world) Pods(_ context.Context, pods []placer.PodOn) (map[placer.PodOn]placer.Use, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := map[placer.PodOn]placer.Use{}
	for _, p := range pods {
		if use, ok := w.pods[p]; ok {
			out[p] = use
		}
	}
	return out, w.err
}

func (w *world) Estimate(ctx context.Context, image string) (task.Seconds, error) {
	w.read(ctx)
	return w.history[image], w.err
}

func (w *world) Now() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.now
}

func (w *world) pass(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.now = w.now.Add(d)
}

// hold changes what a container holds, of the node's one GPU.
func (w *world) hold(id, node string, bytes uint64, tasks int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	gpu := "GPU-" + node
	before := w.tenants[id].Memory[gpu]
	for i := range w.nodes {
		if w.nodes[i].Name == node {
			w.nodes[i].GPUs[0].MemoryFree += before - bytes
		}
	}
	w.tenants[id] = placer.Tenant{Memory: map[string]uint64{gpu: bytes}, Tasks: tasks}
}

func node(name string, free uint64) placement.Node {
	inf := task.Seconds(math.Inf(1))
	return placement.Node{Name: name, Fresh: true, Provisionable: true, Float: inf, GPUs: []placement.GPU{{
		UUID: "GPU-" + name, Provisionable: true, Open: true, MemoryTotal: 80 * gib, MemoryFree: free * gib,
	}}}
}

func start(t interface {
	TempDir() string
	Cleanup(func())
	Fatal(...any)
}, method placement.Method, nodes ...placement.Node) (*world, *placer.Placer) {
	w := &world{now: time.Unix(1_800_000_000, 0), nodes: nodes, tenants: map[string]placer.Tenant{}, history: map[string]task.Seconds{}}
	l, _, err := reservation.Open(filepath.Join(t.TempDir(), "placements.db"), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	n := 0
	p, err := placer.New(placer.Options{Source: w, Reservations: l, Method: method, Now: w.Now, NewID: func() string { n++; return fmt.Sprint("p", n) }})
	if err != nil {
		t.Fatal(err)
	}
	return w, p
}

// Whoever may read may ask about all nodes as often as they like: the facts of a large fleet are read by two at a time.
func TestQuestionsAboutAllNodesTakeTurns(t *testing.T) {
	w, p := start(t, placement.DefaultMethod, node("a", 10))
	w.reads = make(chan chan struct{}, 10)
	answered := make(chan error, 5)
	for range 5 {
		go func() {
			_, err := p.Explain(t.Context(), need(0, 1))
			answered <- err
		}()
	}
	first, second := <-w.reads, <-w.reads
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := p.Explain(ctx, need(0, 1)); !errors.Is(err, context.Canceled) || len(w.reads) > 0 {
		t.Errorf("a third one: %v; %d more read", err, len(w.reads))
	}
	close(first)
	close(second)
	for range 3 {
		close(<-w.reads)
	}
	for range 5 {
		if err := <-answered; err != nil {
			t.Error(err)
		}
	}
}

// Clients that only read may keep Prometheus busy: a placement is refused, and the refusal explained, all the same.
func TestRefusalsWaitForNoReader(t *testing.T) {
	w, p := start(t, placement.DefaultMethod, node("a", 10))
	w.short = true
	w.reads = make(chan chan struct{}, 10)
	answered := make(chan error, 2)
	for range 2 {
		go func() {
			_, err := p.Explain(t.Context(), need(0, 1))
			answered <- err
		}()
	}
	readers := []chan struct{}{<-w.reads, <-w.reads}
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second) // less than the readers have
	defer cancel()
	refused := make(chan error, 1)
	go func() {
		_, _, err := p.Place(ctx, need(0, 20))
		refused <- err
	}()
	for reading := true; reading; {
		select {
		case end := <-w.reads:
			close(end)
		case err := <-refused:
			reading = false
			if full := new(placer.NoRoomError); !errors.As(err, &full) {
				t.Errorf("it answers %v", err)
			}
		}
	}
	for _, end := range readers {
		close(end)
		if err := <-answered; err != nil {
			t.Error(err)
		}
	}
}

// Further questions that read facts, or the history of an image, are answered eight at a time, whoever asks them; they
// keep neither questions about all nodes nor placements waiting.
func TestOtherQuestionsTakeTurns(t *testing.T) {
	const most = 8
	of := func(node, image string) placer.Request {
		return placer.Request{Request: placement.Request{Deadline: 9, Node: node}, Image: image}
	}
	for name, req := range map[string]placer.Request{
		"of one node":                   of("a", ""),
		"of an image":                   of("", "img"),
		"of one node and its image":     of("a", "img"),
		"of an unknown node's image":    of("z", "img"),
		"of an unknown node, all named": of("z", ""),
	} {
		t.Run(name, func(t *testing.T) {
			w, p := start(t, placement.Predictive, node("a", 10))
			w.short = true
			w.reads = make(chan chan struct{}, 100)
			answered := make(chan error, most)
			for range most {
				go func() {
					_, err := p.Explain(t.Context(), req)
					answered <- err
				}()
			}
			var reading []chan struct{}
			for range most {
				reading = append(reading, <-w.reads)
			}
			gone, cancel := context.WithCancel(t.Context())
			cancel()
			for range 20 { // where a place is free, each gets it half of the time
				if _, err := p.Explain(gone, req); !errors.Is(err, context.Canceled) || len(w.reads) > 0 {
					t.Fatalf("one more: %v; %d more read", err, len(w.reads))
				}
			}
			for range 2 { // others go on
				go func() {
					_, err := p.Explain(t.Context(), need(0, 1))
					answered <- err
				}()
				close(<-w.reads)
				if err := <-answered; err != nil {
					t.Error(err)
				}
			}
			go func() {
				_, _, err := p.Place(t.Context(), of("", ""))
				answered <- err
			}()
			close(<-w.reads)
			if err := <-answered; err != nil {
				t.Error(err)
			}
			for _, end := range reading {
				close(end)
			}
			var unknown *placer.UnknownNodeError
			for n := 0; n < most; {
				select {
				case end := <-w.reads:
					close(end)
				case err := <-answered:
					if n++; err != nil && (!errors.As(err, &unknown) || req.Node != "z") {
						t.Error(err)
					}
				}
			}
		})
	}
}

// TestPlaceOfNobodyWaiting: an answer that comes too late reserves nothing.
func TestPlaceOfNobodyWaiting(t *testing.T) {
	for _, when := range []string{"before it is asked", "while facts are read", "while it is decided"} {
		t.Run(when, func(t *testing.T) {
			w := &world{now: time.Unix(1_800_000_000, 0), nodes: []placement.Node{node("a", 80)}}
			l, _, err := reservation.Open(filepath.Join(t.TempDir(), "placements.db"), w.now)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = l.Close() })
			ctx, cancel := context.WithCancel(t.Context())
			n := 0
			p, err := placer.New(placer.Options{Source: w, Reservations: l, Now: w.Now, NewID: func() string {
				if when == "while it is decided" {
					cancel()
				}
				n++
				return fmt.Sprint("p", n)
			}})
			if err != nil {
				t.Fatal(err)
			}
			if when == "before it is asked" {
				cancel()
			}
			w.reads = make(chan chan struct{})
			go func() {
				end := <-w.reads
				if when == "while facts are read" {
					cancel()
				}
				close(end)
			}()
			got, _, err := p.Place(ctx, placer.Request{Request: placement.Request{GPUMemory: 10 * gib}, Count: 3})
			if !errors.Is(err, context.Canceled) || len(got) > 0 || len(p.List()) > 0 {
				t.Errorf("%v, %v; reserved %+v", got, err, p.List())
			}
			if when != "while it is decided" && n > 0 {
				t.Errorf("%d places were found for nobody", n)
			}
		})
	}
}

func need(deadline task.Seconds, memory uint64) placer.Request {
	return placer.Request{Request: placement.Request{Deadline: deadline, GPUMemory: memory * gib}}
}

func TestPlaceAndPromise(t *testing.T) {
	_, p := start(t, placement.Paper, node("a", 20), node("b", 12))
	ctx := t.Context()
	for i, want := range []string{"a", "b", "a"} {
		got, _, err := p.Place(ctx, need(9, 10))
		if err != nil {
			t.Fatal(err)
		}
		if got[0].Node != want || got[0].GPU != "GPU-"+want || got[0].State != reservation.Assumed {
			t.Errorf("placement %d = %+v, want node %s", i, got[0], want)
		}
	}
	_, _, err := p.Place(ctx, need(9, 10))
	var full *placer.NoRoomError
	if !errors.As(err, &full) || full.Error() != "no node can take it: 0/2 nodes: 2 GPU memory short (need 10GiB, free 20GiB − 20GiB reserved); a is expected to in 9s, when tasks queued there have ended" {
		t.Errorf("error = %v", err)
	}
	if err := p.Release(ctx, "p1"); err != nil {
		t.Fatal(err)
	}
	if got, _, err := p.Place(ctx, need(9, 10)); err != nil || got[0].Node != "a" {
		t.Errorf("after a release: %v, %v", got, err)
	}
	if err := p.Release(ctx, "p1"); !errors.Is(err, placer.ErrNotFound) {
		t.Errorf("released twice: %v", err)
	}
}

func TestBadRequests(t *testing.T) {
	w, p := start(t, placement.Paper, node("a", 20), node("b", 12))
	for says, req := range map[string]placer.Request{
		`no node "z": known are a, b`:                               {Request: placement.Request{Node: "z"}},
		"no GPU is that large: need 200GiB, the largest has 80GiB":  need(9, 200),
		"only 3 of 5 find a place: 0/2 nodes: 2 GPU memory short (": {Request: placement.Request{GPUMemory: 10 * gib}, Count: 5},
	} {
		_, _, err := p.Place(t.Context(), req)
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("error = %v, want %s", err, says)
		}
	}
	if len(p.List()) != 0 {
		t.Errorf("half of it was promised: %v", p.List())
	}
	if _, err := p.Explain(t.Context(), placer.Request{Request: placement.Request{Node: "z"}}); err == nil {
		t.Error("an unknown node was explained")
	}
	w.err = errors.New("prometheus is down")
	var down *placer.SourceError
	if _, _, err := p.Place(t.Context(), need(9, 1)); !errors.As(err, &down) || !strings.Contains(err.Error(), "prometheus is down") {
		t.Errorf("error = %v", err)
	}
	w.err = nil
	if got, _, err := p.Place(t.Context(), placer.Request{Request: placement.Request{GPUMemory: 10 * gib}, Count: 3}); err != nil || len(got) != 3 {
		t.Errorf("count 3: %v, %v", got, err)
	}
}

// assume, create, confirm, end.
func TestALifeOfAPromise(t *testing.T) {
	w, p := start(t, placement.Paper, node("a", 20))
	ctx := t.Context()
	free := func() uint64 {
		t.Helper()
		if err := p.Settle(ctx); err != nil {
			t.Fatal(err)
		}
		r, err := p.Explain(ctx, placer.Request{})
		if err != nil {
			t.Fatal(err)
		}
		return (r[0].Node.GPUs[0].MemoryFree - r[0].Node.GPUs[0].Reserved) / gib
	}
	if _, _, err := p.Place(ctx, need(9, 8)); err != nil {
		t.Fatal(err)
	}
	w.pass(time.Minute)
	if _, err := p.Check(ctx, "p1"); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Bind(ctx, "p1", "c1"); err != nil {
		t.Fatal(err)
	}
	if free() != 12 {
		t.Errorf("free = %d", free())
	}
	w.hold("c1", "a", 0, 0) // known, and slow to begin
	w.pass(10 * time.Minute)
	_ = free()
	w.hold("c1", "a", 3*gib, 1)
	if got := free(); got != 12 || p.List()[0].State != reservation.Confirmed {
		t.Errorf("confirmed: free = %d, %+v", got, p.List()[0])
	}
	w.hold("c1", "a", 9*gib, 1) // more than it asked for
	if got := free(); got != 11 {
		t.Errorf("over its limit: free = %d", got)
	}
	w.hold("c1", "a", 0, 0) // between two tasks: it may hold 8 again
	if got := free(); got != 12 {
		t.Errorf("between tasks: free = %d", got)
	}
	delete(w.tenants, "c1")
	if got := free(); got != 12 {
		t.Errorf("just gone: free = %d", got)
	}
	w.pass(31 * time.Second)
	_ = free()
	if got := free(); got != 20 || len(p.List()) != 0 {
		t.Errorf("gone: free = %d, %v", got, p.List())
	}
}

// What is reserved on a node that never returns ends, some time after nobody knows the node any more.
func TestPromiseOfANodeThatIsGone(t *testing.T) {
	w, p := start(t, placement.Paper, node("a", 20), node("b", 10))
	ctx := t.Context()
	settle := func() {
		t.Helper()
		if err := p.Settle(ctx); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, err := p.Place(ctx, need(9, 8)); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Bind(ctx, "p1", "c1"); err != nil {
		t.Fatal(err)
	}
	w.hold("c1", "a", 8*gib, 1)
	settle()
	delete(w.tenants, "c1")
	nodes := w.nodes
	w.nodes = nodes[1:] // a is gone, b is known
	w.pass(59 * time.Minute)
	settle()
	if len(p.List()) != 1 {
		t.Fatalf("it ended after 59 minutes: the node may return")
	}
	w.nodes = nodes // it returns, and goes again
	nodes[0].Fresh = false
	settle()
	w.nodes = nodes[1:]
	w.pass(59 * time.Minute)
	settle()
	if len(p.List()) != 1 {
		t.Fatalf("it ended 59 minutes after its node was last seen")
	}
	w.pass(2 * time.Minute)
	settle()
	if len(p.List()) != 0 {
		t.Errorf("left: %+v", p.List())
	}
}

func TestPromisesExpire(t *testing.T) {
	w, p := start(t, placement.Paper, node("a", 20))
	ctx := t.Context()
	for range 2 {
		if _, _, err := p.Place(ctx, need(9, 8)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := p.Bind(ctx, "p2", "never-seen"); err != nil {
		t.Fatal(err)
	}
	w.pass(placer.DefaultTTL)
	if err := p.Settle(ctx); err != nil {
		t.Fatal(err)
	}
	if list := p.List(); len(list) != 1 || list[0].ID != "p2" {
		t.Errorf("entries = %v", list)
	}
	w.pass(29 * time.Second)
	if err := p.Settle(ctx); err != nil || len(p.List()) != 1 {
		t.Errorf("its exporter may have just begun: %v, %v", p.List(), err)
	}
	w.pass(time.Second)
	if err := p.Settle(ctx); err != nil || len(p.List()) != 0 {
		t.Errorf("entries = %v, %v", p.List(), err)
	}
	if _, err := p.Check(ctx, "p1"); !errors.Is(err, placer.ErrNotFound) {
		t.Errorf("check of an expired one: %v", err)
	}
	if _, err := p.Bind(ctx, "p1", "c"); !errors.Is(err, placer.ErrNotFound) {
		t.Errorf("bind of an expired one: %v", err)
	}
}

// A node that says nothing may run the container: what is reserved there stays until it answers.
func TestPromiseOfANodeThatIsStale(t *testing.T) {
	w, p := start(t, placement.Paper, node("a", 20))
	ctx := t.Context()
	if _, _, err := p.Place(ctx, need(9, 8)); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Bind(ctx, "p1", "c1"); err != nil {
		t.Fatal(err)
	}
	w.nodes[0].Fresh = false
	w.pass(10 * placer.DefaultTTL)
	if err := p.Settle(ctx); err != nil || len(p.List()) != 1 {
		t.Fatalf("its node is stale: %v, %v", p.List(), err)
	}
	w.nodes[0].Fresh = true
	w.hold("c1", "a", gib, 0)
	if err := p.Settle(ctx); err != nil || len(p.List()) != 1 {
		t.Errorf("it runs: %v, %v", p.List(), err)
	}
}

// After an actuator's restart nobody remembers when a container was seen. One that has had no task, of a node whose
// exporter begins anew, keeps what is reserved: while the engine does not answer, and for a time after that.
func TestIdleServerSurvivesRestarts(t *testing.T) {
	dir := t.TempDir()
	w := &world{now: time.Unix(1_800_000_000, 0), nodes: []placement.Node{node("a", 80)}, tenants: map[string]placer.Tenant{}}
	begin := func() (p *placer.Placer, end func()) {
		l, _, err := reservation.Open(filepath.Join(dir, "placements.db"), w.now)
		if err != nil {
			t.Fatal(err)
		}
		if p, err = placer.New(placer.Options{Source: w, Reservations: l, Now: w.Now}); err != nil {
			t.Fatal(err)
		}
		return p, func() { _ = l.Close() }
	}
	p, end := begin()
	e, _, err := p.Place(t.Context(), need(0, 30))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Bind(t.Context(), e[0].ID, "c1"); err != nil {
		t.Fatal(err)
	}
	w.pass(time.Hour)
	end()
	p, end = begin()
	defer func() { end() }()
	settle := func(after time.Duration, left int) {
		t.Helper()
		w.pass(after)
		if err := p.Settle(t.Context()); err != nil || len(p.List()) != left {
			t.Fatalf("%v: reserved %+v, want %d", err, p.List(), left)
		}
	}
	settle(0, 1) // the exporter has listed no container yet
	settle(20*time.Second, 1)
	w.nodes[0].Fresh = false // its engine does not answer
	settle(time.Hour, 1)
	w.nodes[0].Fresh = true
	settle(29*time.Second, 1)
	w.hold("c1", "a", gib, 0)
	settle(time.Hour, 1)
	delete(w.tenants, "c1")
	settle(29*time.Second, 1)
	settle(time.Second, 0)
}

// A server that has no request yet reserves its memory for as long as it is there, and its work for a time only.
func TestWorkOfAnIdleServerEnds(t *testing.T) {
	w, p := start(t, placement.Predictive, node("a", 80))
	ctx := t.Context()
	if _, _, err := p.Place(ctx, need(0.2, 30)); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Bind(ctx, "p1", "c1"); err != nil {
		t.Fatal(err)
	}
	w.hold("c1", "a", gib, 0)
	if _, _, err := p.Place(ctx, need(0.2, 30)); err == nil {
		t.Error("its work is not counted at first")
	}
	w.pass(placer.DefaultTTL)
	if err := p.Settle(ctx); err != nil {
		t.Fatal(err)
	}
	if _, _, err := p.Place(ctx, need(0.2, 51)); err == nil {
		t.Error("its memory is not counted")
	}
	if _, _, err := p.Place(ctx, need(0.2, 50)); err != nil {
		t.Error(err)
	}
}

// What reserves neither work nor memory is spread over equal GPUs.
func TestRequestsWithoutWishesSpread(t *testing.T) {
	for _, method := range []placement.Method{placement.Paper, placement.Predictive} {
		_, p := start(t, method, node("a", 80), node("b", 80), node("c", 80))
		got := map[string]int{}
		for range 6 {
			e, _, err := p.Place(t.Context(), placer.Request{})
			if err != nil {
				t.Fatal(err)
			}
			got[e[0].Node]++
		}
		if got["a"] != 2 || got["b"] != 2 || got["c"] != 2 {
			t.Errorf("%s: %v", method, got)
		}
	}
}

// What changes between the placement and the creation is found by Check.
func TestCheckFindsWhatHasChanged(t *testing.T) {
	for name, change := range map[string]func(n *placement.Node){
		"memory taken": func(n *placement.Node) { n.GPUs[0].MemoryFree = gib },
		"missed":       func(n *placement.Node) { n.GPUs[0].Provisionable = false },
		"stale":        func(n *placement.Node) { n.Fresh = false },
		"float":        func(n *placement.Node) { n.Float = 2 },
		"GPU gone":     func(n *placement.Node) { n.GPUs = nil },
	} {
		t.Run(name, func(t *testing.T) {
			w, p := start(t, placement.Paper, node("a", 20), node("b", 10))
			if _, _, err := p.Place(t.Context(), need(9, 8)); err != nil {
				t.Fatal(err)
			}
			change(&w.nodes[0])
			var gone *placer.NoRoomError
			if _, err := p.Check(t.Context(), "p1"); !errors.As(err, &gone) {
				t.Errorf("error = %v", err)
			}
			if len(p.List()) != 0 {
				t.Error("it is not released")
			}
			if got, _, err := p.Place(t.Context(), need(9, 8)); err != nil || got[0].Node != "b" {
				t.Errorf("again: %v, %v", got, err)
			}
		})
	}
}

// A renewal is answered while the container is being created, which goes on whatever is said: where the facts are
// not fresh it stays until it expires.
func TestRenewalOutlastsStaleFacts(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(w *world)
		kept   bool
	}{
		"stale":        {func(w *world) { w.nodes[0].Fresh = false }, true},
		"node unknown": {func(w *world) { w.nodes = w.nodes[1:] }, true},
		"memory taken": {func(w *world) { w.nodes[0].GPUs[0].MemoryFree = gib }, false},
	} {
		t.Run(name, func(t *testing.T) {
			w, p := start(t, placement.Paper, node("a", 20), node("b", 1))
			if _, _, err := p.Place(t.Context(), need(9, 15)); err != nil {
				t.Fatal(err)
			}
			w.pass(time.Second)
			if _, err := p.Check(t.Context(), "p1"); err != nil {
				t.Fatal(err)
			}
			nodes := slices.Clone(w.nodes)
			tc.change(w)
			w.pass(20 * time.Second)
			var refused *placer.NoRoomError
			if _, err := p.Check(t.Context(), "p1"); !errors.As(err, &refused) || (len(p.List()) == 1) != tc.kept {
				t.Fatalf("%v, reserved %+v", err, p.List())
			}
			if !tc.kept {
				return
			}
			w.nodes = nodes
			w.nodes[0].Fresh = true
			if _, _, err := p.Place(t.Context(), need(9, 15)); !errors.As(err, &refused) {
				t.Errorf("promised twice: %v", err)
			}
			if e, err := p.Check(t.Context(), "p1"); err != nil || !e.Expires.Equal(w.now.Add(placer.DefaultTTL)) {
				t.Errorf("renewed: %+v, %v", e, err)
			}
			if _, err := p.Bind(t.Context(), "p1", "c1"); err != nil {
				t.Error(err)
			}
		})
	}
	t.Run("nobody renews it", func(t *testing.T) {
		w, p := start(t, placement.Paper, node("a", 20))
		if _, _, err := p.Place(t.Context(), need(9, 15)); err != nil {
			t.Fatal(err)
		}
		w.pass(time.Second)
		if _, err := p.Check(t.Context(), "p1"); err != nil {
			t.Fatal(err)
		}
		w.nodes[0].Fresh = false
		w.pass(placer.DefaultTTL - time.Second)
		_, _ = p.Check(t.Context(), "p1") // refused: it renews nothing
		w.pass(time.Second)
		if err := p.Settle(t.Context()); err != nil || len(p.List()) != 0 {
			t.Errorf("%v: %+v", err, p.List())
		}
	})
}

// TestCheckIgnoresItsOwnWork: a reservation with a deadline and memory is not in its own way.
func TestCheckIgnoresItsOwnWork(t *testing.T) {
	_, p := start(t, placement.Predictive, node("a", 20))
	if _, _, err := p.Place(t.Context(), need(9, 8)); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Check(t.Context(), "p1"); err != nil {
		t.Errorf("nothing has changed, and %v", err)
	}
}

func TestPredictiveCountsPromisedWork(t *testing.T) {
	w, p := start(t, placement.Predictive, node("a", 80), node("b", 80))
	w.history["matmul"] = 5
	req := placer.Request{Request: placement.Request{Deadline: 9}, Image: "matmul"}
	var got []string
	for range 2 {
		e, _, err := p.Place(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, e[0].Node)
	}
	if strings.Join(got, " ") != "a b" {
		t.Errorf("nodes = %v", got)
	}
	if _, _, err := p.Place(t.Context(), req); err == nil || !strings.Contains(err.Error(), "2 time short (due in 9s, needs 5s after 5s of work that is due earlier)") {
		t.Errorf("error = %v", err)
	}
}

func TestPromisesSurviveACrash(t *testing.T) {
	path := filepath.Join(t.TempDir(), "placements.db")
	now := time.Unix(1, 0).UTC()
	l, _, err := reservation.Open(path, now)
	if err != nil {
		t.Fatal(err)
	}
	e := reservation.Entry{ID: "x", Node: "a", GPU: "GPU-a", Memory: 5, Deadline: 9, State: reservation.Created, Container: "c", Made: now, Expires: time.Unix(2, 0).UTC()}
	if err := l.Apply(reservation.Change{Keep: []reservation.Entry{e, {ID: "y"}}}); err != nil {
		t.Fatal(err)
	}
	if err := l.Apply(reservation.Change{Forget: []string{"y"}}); err != nil {
		t.Fatal(err)
	}
	if _, _, err := reservation.Open(path, now); err == nil {
		t.Error("two have it open at once")
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if l, _, err = reservation.Open(path, now); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	if got := l.List(); len(got) != 1 || got[0] != e {
		t.Errorf("entries = %+v", got)
	}
}

// Whatever comes in whatever order, from many at once: no GPU is ever promised
// more than it has, a reservation that was answered is in the store, and one that was
// refused is not.
func TestNothingIsPromisedTwice(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		dir := t.TempDir()
		var cleanups []func()
		defer func() {
			for _, f := range slices.Backward(cleanups) {
				f()
			}
		}()
		host := &host{dir, &cleanups, rt}
		var nodes []placement.Node
		for i := range rapid.IntRange(1, 4).Draw(rt, "nodes") {
			nodes = append(nodes, node(fmt.Sprint("n", i), rapid.Uint64Range(0, 40).Draw(rt, "free")))
		}
		capacity := map[string]uint64{}
		for _, n := range nodes {
			capacity[n.Name] = n.GPUs[0].MemoryFree
		}
		w, p := start(host, placement.Paper, nodes...)
		w.short = rapid.Bool().Draw(rt, "short lists")
		for range rapid.IntRange(1, 12).Draw(rt, "rounds") {
			var all sync.WaitGroup
			for range rapid.IntRange(1, 6).Draw(rt, "clients") {
				memory, count := rapid.Uint64Range(0, 20).Draw(rt, "memory"), rapid.IntRange(1, 3).Draw(rt, "count")
				all.Go(func() {
					req := need(9, memory)
					req.Count = count
					got, _, err := p.Place(context.Background(), req)
					if (err == nil) != (len(got) == count) {
						panic(fmt.Sprintf("%d of %d, %v", len(got), count, err))
					}
				})
			}
			all.Wait()
			for i, e := range p.List() {
				switch rapid.IntRange(0, 5).Draw(rt, "what") {
				case 0:
					_ = p.Release(context.Background(), e.ID)
				case 1:
					if _, err := p.Check(context.Background(), e.ID); err != nil {
						rt.Fatalf("nothing has changed, and %v", err)
					}
				case 2:
					if e.State == reservation.Assumed {
						_, _ = p.Bind(context.Background(), e.ID, fmt.Sprint("c-", e.ID))
					}
				case 3:
					if e.Container != "" { // it takes a part of what it may have
						w.hold(e.Container, e.Node, e.Memory/uint64(1+i%3), 1)
					}
				}
			}
			promised := map[string]uint64{}
			for _, e := range p.List() {
				promised[e.Node] += e.Memory
			}
			for name, n := range promised {
				if n > capacity[name] {
					rt.Fatalf("%s: %s of %s is promised", name, placement.Bytes(n), placement.Bytes(capacity[name]))
				}
			}
		}
	})
}

// host lends a rapid check what start needs of a test.
type host struct {
	dir      string
	cleanups *[]func()
	t        interface{ Fatal(...any) }
}

func (h *host) TempDir() string   { return h.dir }
func (h *host) Cleanup(f func())  { *h.cleanups = append(*h.cleanups, f) }
func (h *host) Fatal(args ...any) { h.t.Fatal(args...) }

// A file that cannot be read keeps nobody from starting, and a clock that was set back makes
// no reservation last longer.
func TestPromisesOfADamagedFileAndOfLater(t *testing.T) {
	path := filepath.Join(t.TempDir(), "placements.db")
	now := time.Unix(7200, 0).UTC()
	l, _, err := reservation.Open(path, now)
	if err != nil {
		t.Fatal(err)
	}
	e := reservation.Entry{ID: "x", State: reservation.Assumed, Made: now, Expires: now.Add(time.Minute)}
	if err := errors.Join(l.Apply(reservation.Change{Keep: []reservation.Entry{e}}), l.Close()); err != nil {
		t.Fatal(err)
	}
	back := now.Add(-time.Hour)
	if l, _, err = reservation.Open(path, back); err != nil {
		t.Fatal(err)
	}
	if got, _ := l.Get("x"); !got.Expires.Equal(back.Add(time.Minute)) || got.Made.After(back) {
		t.Errorf("%+v", got)
	}
	if err := errors.Join(l.Close(), os.WriteFile(path, []byte("garbage"), 0o600)); err != nil {
		t.Fatal(err)
	}
	l, damaged, err := reservation.Open(path, now)
	if err != nil || damaged == nil {
		t.Fatalf("%v, told %v", err, damaged)
	}
	if err := errors.Join(l.Apply(reservation.Change{Keep: []reservation.Entry{e}}), l.Close()); err != nil {
		t.Error(err)
	}
}
