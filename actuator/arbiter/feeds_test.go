package arbiter

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/laxity/laxity/actuator/allocator/ledger"
	"github.com/laxity/laxity/actuator/arbiter/core"
	"github.com/laxity/laxity/actuator/collector"
	"github.com/laxity/laxity/actuator/config"
	"github.com/laxity/laxity/actuator/decision/decisionlog"
	"github.com/laxity/laxity/actuator/enforce"
	"github.com/laxity/laxity/actuator/inbox"
	"github.com/laxity/laxity/actuator/journal"
	"github.com/laxity/laxity/actuator/lease"
	"github.com/laxity/laxity/actuator/webhook"
	"github.com/laxity/laxity/exporter/task"
)

var began = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// newArbiter is one whose loop does not run: a test calls what the loop would call.
func newArbiter(t *testing.T, e enforce.Enforcer, s enforce.Swapper) *Arbiter {
	t.Helper()
	dir := t.TempDir()
	in, _, err := inbox.Open(filepath.Join(dir, "inbox.db"), inbox.Bounds{Messages: 10, Bytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = in.Close() })
	j, err := journal.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	log, err := decisionlog.Open(decisionlog.Options{})
	if err != nil {
		t.Fatal(err)
	}
	a := New(Options{
		Core:     core.Options{Node: "n1", Config: config.Config{}.WithDefaults(), MaxSnapshotAge: 10 * time.Second, HoldLease: 30 * time.Second},
		StateDir: dir, Enforcer: e, Swapper: s, Journal: j, Ledger: ledger.New(ledger.Options{}), Leader: NewLeader("", nil), Inbox: in,
		Decisions: log, Metrics: collector.New(), Now: func() time.Time { return began }, Tick: 100 * time.Millisecond, Logger: slog.New(slog.DiscardHandler),
	})
	a.core = core.New(a.o.Core, began)
	return a
}

// engine reports each unpause, and takes the container off the record.
type engine struct {
	enforce.Enforcer
	journal  *journal.Journal
	unpaused chan string
}

func (engine) Calls() uint64 { return 0 }

func (e engine) Unpause(_ context.Context, id string) error {
	e.unpaused <- id
	return e.journal.Remove(id)
}

// receive puts a message into the inbox as webhook does.
func receive(t *testing.T, a *Arbiter, at time.Time, m any) {
	t.Helper()
	raw, err := json.Marshal(m)
	if err == nil {
		err = a.o.Inbox.Put(raw, at)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// told lists what was decided, as "result: reason".
func told(a *Arbiter) (all []string) {
	list, _ := a.o.Decisions.Last(0)
	for _, d := range list {
		all = append(all, fmt.Sprintf("%s: %s", d.Result, d.Reason))
	}
	return all
}

// An exporter that has only just begun has read neither GPUs nor containers. An alert about one stays in the inbox
// then, but not for longer than its lease.
func TestAlertAwaitsFacts(t *testing.T) {
	const opened = "opened: not confirmed: 0 unfinished task on the GPU, nothing to arbitrate yet"
	noGPU, noContainer := `ignored: the exporter knows no GPU "GPU-0"`, `ignored: the exporter knows no running container "web"`
	both, lease := task.Health{DeviceUp: true, EngineUp: true}, config.DefaultLease
	gpus := []task.GPU{{UUID: "GPU-0", MemoryTotal: 100}}
	for name, tt := range map[string]struct {
		action, status string
		gpu            string
		health         task.Health
		gpus           []task.GPU
		age            time.Duration
		want           string // empty: it stays
	}{
		"nothing is read yet":                   {action: "arbitrate"},
		"nothing is read yet, of a container":   {action: "pause"},
		"only the engine was read":              {action: "arbitrate", health: task.Health{EngineUp: true}},
		"only the GPUs were read":               {action: "pause", health: task.Health{DeviceUp: true}, gpus: gpus},
		"the GPUs were read":                    {action: "arbitrate", health: task.Health{DeviceUp: true}, gpus: gpus, want: opened},
		"the GPUs that were read do not answer": {action: "arbitrate", gpus: gpus, want: opened},
		"both were read":                        {action: "arbitrate", health: both, gpus: gpus, want: opened},
		"no such container":                     {action: "pause", health: both, gpus: gpus, want: noContainer},
		"no such GPU":                           {action: "arbitrate", gpu: "GPU-1", health: both, gpus: gpus, want: `ignored: the exporter knows no GPU "GPU-1"`},
		"a node without a GPU":                  {action: "arbitrate", health: both, want: noGPU},
		"nothing is read for long":              {action: "arbitrate", age: lease - time.Second},
		"nothing is read for a lease":           {action: "arbitrate", age: lease, want: noGPU},
		"resolved":                              {action: "arbitrate", status: webhook.Resolved, want: "ignored: resolved, and no lease of it is open"},
		"of the node":                           {action: "drain", want: "opened: no new placements on this node"},
		"for people":                            {want: "ignored: it has no label `action`, so it is for people alone"},
	} {
		t.Run(name, func(t *testing.T) {
			a := newArbiter(t, engine{}, nil)
			if tt.status == "" {
				tt.status = webhook.Firing
			}
			if tt.gpu == "" {
				tt.gpu = "GPU-0"
			}
			receive(t, a, began.Add(-tt.age), webhook.Message{Version: "4", Alerts: []webhook.Alert{{Status: tt.status, Fingerprint: "f", StartsAt: began.Add(-tt.age),
				Labels: map[string]string{"alertname": "A", "action": tt.action, "gpu": tt.gpu, "container": "web"}}}})
			fetch := func(health task.Health, gpus []task.GPU) {
				a.takeFetched(t.Context(), fetched{inbox: a.o.Inbox.Last(),
					snap: &task.Snapshot{Run: "r", Time: began, Health: health, GPUs: gpus, Sequence: uint64(len(told(a)))}})
			}
			fetch(tt.health, tt.gpus)
			if tt.want != "" {
				if got := told(a); !slices.Equal(got, []string{tt.want}) || a.o.Inbox.Len() > 0 {
					t.Errorf("told %q, %d in the inbox", got, a.o.Inbox.Len())
				}
				return
			}
			if got := told(a); len(got) > 0 || a.o.Inbox.Len() != 1 {
				t.Fatalf("told %q, %d in the inbox", got, a.o.Inbox.Len())
			}
			a.core.Step(began, core.Around{Inbox: 1})
			if a.core.Effects().Fetch {
				t.Error("the exporter is asked again at once")
			}
			fetch(both, gpus)
			if len(told(a)) != 1 || a.o.Inbox.Len() > 0 {
				t.Errorf("with facts: told %q, %d in the inbox", told(a), a.o.Inbox.Len())
			}
		})
	}
}

// What waits in the inbox keeps its order, and what came before it takes effect.
func TestAlertsBeforeOneThatAwaitsFacts(t *testing.T) {
	a := newArbiter(t, engine{}, nil)
	for i, action := range []string{"drain", "arbitrate", "drain"} {
		receive(t, a, began, webhook.Message{Version: "4", Alerts: []webhook.Alert{{Status: webhook.Firing, Fingerprint: fmt.Sprint(i), StartsAt: began,
			Labels: map[string]string{"action": action, "gpu": "GPU-0"}}}})
	}
	a.takeFetched(t.Context(), fetched{inbox: a.o.Inbox.Last(), snap: &task.Snapshot{Run: "r", Time: began}})
	if len(told(a)) != 1 || a.o.Inbox.Len() != 2 || len(a.leases.Leases()) != 1 {
		t.Errorf("told %q, %d in the inbox, leases %+v", told(a), a.o.Inbox.Len(), a.leases.Leases())
	}
}

// A message that cannot be read is dropped: nothing is done by the part that could be read.
func TestUnreadableMessageChangesNothing(t *testing.T) {
	a := newArbiter(t, engine{}, nil)
	receive(t, a, began, map[string]any{
		"alerts":          []any{map[string]any{"status": "firing", "fingerprint": "f", "labels": map[string]string{"alertname": "A", "action": "drain"}}},
		"truncatedAlerts": "many",
	})
	a.takeFetched(t.Context(), fetched{inbox: a.o.Inbox.Last(), snap: &task.Snapshot{Run: "r", Time: began, Health: task.Health{DeviceUp: true, EngineUp: true}}})
	if got := told(a); !slices.Equal(got, []string{"failed: a message in the inbox cannot be read; it is dropped"}) || len(a.leases.Leases()) > 0 || a.o.Inbox.Len() > 0 {
		t.Errorf("told %q, %d in the inbox, leases %+v", got, a.o.Inbox.Len(), a.leases.Leases())
	}
}

// What an alert asks for is on disk before its message leaves the inbox.
func TestAlertStaysUntilItsLeaseIsOnDisk(t *testing.T) {
	a := newArbiter(t, engine{}, nil)
	receive(t, a, began, webhook.Message{Version: "4", Alerts: []webhook.Alert{{Status: webhook.Firing, Fingerprint: "f", StartsAt: began,
		Labels: map[string]string{"action": "drain"}}}})
	consume := func() {
		a.takeFetched(t.Context(), fetched{inbox: a.o.Inbox.Last(), snap: &task.Snapshot{Run: "r", Time: began}})
	}
	if err := os.Mkdir(a.leasesPath(), 0o700); err != nil { // so that no file can replace it
		t.Fatal(err)
	}
	if consume(); a.o.Inbox.Len() != 1 || len(a.leases.Leases()) != 1 || !a.leases.Changed() {
		t.Errorf("not on disk: %d in the inbox, leases %+v, to be written: %v", a.o.Inbox.Len(), a.leases.Leases(), a.leases.Changed())
	}
	if err := os.Remove(a.leasesPath()); err != nil {
		t.Fatal(err)
	}
	consume()
	raw, err := os.ReadFile(a.leasesPath())
	if err != nil {
		t.Fatal(err)
	}
	onDisk, err := lease.Decode(raw, began)
	if err != nil || len(onDisk.Leases()) != 1 || a.o.Inbox.Len() != 0 {
		t.Errorf("%d in the inbox, on disk %s, %v", a.o.Inbox.Len(), raw, err)
	}
}
