package intake

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/laxity/laxity/actuator/forward"
	"github.com/laxity/laxity/actuator/inbox"
	"github.com/laxity/laxity/actuator/nodes"
	"github.com/laxity/laxity/actuator/webhook"
)

// now is when every notification of these tests arrives.
var now = time.Unix(1000, 0)

// peer is the actuator of another node: it answers with a status, and remembers whose alerts it got.
type peer struct {
	code int

	mu  sync.Mutex
	got []string
}

func (p *peer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var m webhook.Message
	if err := json.NewDecoder(r.Body).Decode(&m); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.got = append(p.got, nodesOf(m)...)
	w.WriteHeader(p.code)
}

func (p *peer) passedOn() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.got
}

// directory knows actuators by node.
type directory map[string]string

func (d directory) Find(node string) (nodes.Node, bool) {
	address, ok := d[node]
	return nodes.Node{Name: node, Actuator: address}, ok
}

// about is a notification with one alert about each of these nodes.
func about(names ...string) webhook.Message {
	m := webhook.Message{Version: webhook.Version, Status: webhook.Firing}
	for _, n := range names {
		m.Alerts = append(m.Alerts, webhook.Alert{Status: webhook.Firing, Fingerprint: n, Labels: map[string]string{"alertname": "a", "node": n}})
	}
	return m
}

func nodesOf(m webhook.Message) (names []string) {
	for _, a := range m.Alerts {
		names = append(names, a.Labels["node"])
	}
	return names
}

func open(t *testing.T, most inbox.Bounds) *inbox.Inbox {
	t.Helper()
	in, damaged, err := inbox.Open(filepath.Join(t.TempDir(), "inbox.db"), most)
	if err = errors.Join(damaged, err); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = in.Close() })
	return in
}

// kept returns what is in the inbox, one entry for each message: the nodes that its alerts are about.
func kept(t *testing.T, in *inbox.Inbox) (all []string) {
	t.Helper()
	for {
		e, ok, err := in.After(0)
		if err != nil {
			t.Fatal(err)
		}
		if !ok {
			return all
		}
		var m webhook.Message
		if err := json.Unmarshal(e.Payload, &m); err != nil {
			t.Fatal(err)
		}
		if !e.Received.Equal(now) {
			t.Errorf("received at %v, want %v", e.Received, now)
		}
		all = append(all, fmt.Sprint(strings.Join(nodesOf(m), " "), ", ", m.TruncatedAlerts, " truncated"))
		if err := in.Remove(e.ID); err != nil {
			t.Fatal(err)
		}
	}
}

func TestReceive(t *testing.T) {
	truncated := about("b")
	truncated.TruncatedAlerts = 3
	wrong := about("a")
	wrong.Version = "3"
	room := inbox.Bounds{Messages: 10, Bytes: 1 << 20}
	cases := map[string]struct {
		message webhook.Message
		node    string // this node's name
		alone   bool   // without a list of nodes
		marked  bool   // another actuator passed the message on
		code    int    // what the actuator of node b answers; 200 if 0
		room    inbox.Bounds

		kept     []string
		passedOn []string
		err      error  // nil: any, if says is set
		says     string // a part of the error; empty: there is none
	}{
		"about this node":                {message: about("a"), node: "a", kept: []string{"a, 0 truncated"}},
		"about another node":             {message: about("b"), node: "a", passedOn: []string{"b"}},
		"about both":                     {message: about("a", "b"), node: "a", kept: []string{"a, 0 truncated"}, passedOn: []string{"b"}},
		"about an unknown node":          {message: about("c"), node: "a", kept: []string{"c, 0 truncated"}},
		"without alerts":                 {message: about(), node: "a", kept: []string{", 0 truncated"}},
		"truncated alerts are counted":   {message: truncated, node: "a", kept: []string{", 3 truncated"}, passedOn: []string{"b"}},
		"passed on to us":                {message: about("b"), node: "a", marked: true, kept: []string{"b, 0 truncated"}},
		"no other node is known":         {message: about("b"), node: "a", alone: true, kept: []string{"b, 0 truncated"}},
		"our name is unknown":            {message: about("a", "b"), err: forward.ErrUnnamed, says: "--node"},
		"our name is not needed":         {message: about("c"), kept: []string{"c, 0 truncated"}},
		"of another version":             {message: wrong, node: "a", err: webhook.ErrInvalid, says: "version"},
		"the inbox is full":              {message: about("a"), node: "a", room: inbox.Bounds{Bytes: 1 << 20}, err: webhook.ErrFull, says: "0 messages"},
		"a full inbox stops no other":    {message: about("a", "b"), node: "a", room: inbox.Bounds{Bytes: 1 << 20}, passedOn: []string{"b"}, err: webhook.ErrFull, says: "full"},
		"a failing node stops no other":  {message: about("a", "b"), node: "a", code: 503, kept: []string{"a, 0 truncated"}, passedOn: []string{"b"}, says: "not passed on to node b"},
		"refused by the node for good":   {message: about("b"), node: "a", code: 400, passedOn: []string{"b"}},
		"a node that may take it later":  {message: about("b"), node: "a", code: 503, passedOn: []string{"b"}, says: "not passed on to node b"},
		"the inbox is full by its bytes": {message: about("a"), node: "a", room: inbox.Bounds{Messages: 10, Bytes: 1}, err: webhook.ErrFull, says: "1 bytes"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			b := &peer{code: max(c.code, 200)}
			server := httptest.NewServer(b)
			defer server.Close()
			if c.room == (inbox.Bounds{}) {
				c.room = room
			}
			i := &Intake{Inbox: open(t, c.room), Node: func() string { return c.node }, Now: func() time.Time { return now }}
			if !c.alone {
				to := directory{"a": "http://unused.invalid", "b": server.URL}
				f, err := forward.New(forward.Options{Directory: to, Timeout: time.Minute})
				if err != nil {
					t.Fatal(err)
				}
				i.Forward = f
			}
			err := receive(t.Context(), i, c.message, c.marked)
			if (err != nil) != (c.says != "") || c.err != nil && !errors.Is(err, c.err) || err != nil && !strings.Contains(err.Error(), c.says) {
				t.Errorf("error %v, want %v, which says %q", err, c.err, c.says)
			}
			if got := kept(t, i.Inbox); !slices.Equal(got, c.kept) {
				t.Errorf("in the inbox %q, want %q", got, c.kept)
			}
			if got := b.passedOn(); !slices.Equal(got, c.passedOn) {
				t.Errorf("passed on %q, want %q", got, c.passedOn)
			}
		})
	}
}

// receive hands the message in, as a request that carries forward.Header if marked.
func receive(ctx context.Context, i *Intake, m webhook.Message, marked bool) (err error) {
	r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/", nil)
	if marked {
		r.Header.Set(forward.Header, "1")
	}
	forward.Mark(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { err = i.Receive(r.Context(), m) })).ServeHTTP(httptest.NewRecorder(), r)
	return err
}
