package collector_test

import (
	"bytes"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/common/expfmt"

	"github.com/laxity/laxity/actuator/collector"
	"github.com/laxity/laxity/actuator/record"
	"github.com/laxity/laxity/actuator/state"
)

func present(m *collector.Metrics) {
	now := time.Unix(1000, 0)
	m.SetClock(func() time.Time { return now })
	m.SetPresent(func() collector.Present {
		return collector.Present{Holds: 2, Inbox: 1, GuardianUp: true, StrayStops: 3, Ready: true, PauseInstead: true, SnapshotTime: now.Add(-250 * time.Millisecond),
			Arbitrated: map[string]bool{"GPU-1": true, "GPU-2": false},
			Memory: []collector.Memory{{Container: "a", GPU: "GPU-1", Limit: 4, Held: 3, Share: 2, Lent: 1},
				{Container: "b", GPU: "GPU-1", Held: 1, Share: 2}},
			Waiting: []collector.Waiting{{Container: "b", GPU: "GPU-1", Seconds: 1.5}},
			Held:    []collector.Held{{Container: "b", Cause: "arbitrate", By: collector.ByChannels}},
			Slices:  []collector.Slice{{Container: "a", Seconds: 0.1}}, Places: []collector.Place{{Container: "a", GPU: "GPU-1", Place: 1}, {Container: "b", GPU: "GPU-1", Place: 2}},
			Left:      []collector.Left{{Container: "d", Cause: "mps"}},
			Unguarded: []string{"a"}, Unmet: []string{"a"}, Unkept: map[string]bool{"GPU-1": true, "GPU-2": false},
			Denied: []collector.Denied{{Container: "b", GPU: "GPU-1", Time: now}},
			Swapped: []collector.Swapped{{Container: "c", GPU: "GPU-1", Bytes: 7, Since: now}, {Container: "d", GPU: "GPU-1", Bytes: 8, Since: now, Stuck: true},
				{Container: "d", GPU: "GPU-2", Bytes: 9, Since: now, Stuck: true}}}
	})
	m.Alerts.WithLabelValues("arbitrate", "opened").Inc()
	m.Actions.WithLabelValues("pause", "done").Add(2)
	m.ActionSeconds.WithLabelValues("pause").Observe(0.015)
	m.Decision.Observe(0.0002)
	m.Changes.WithLabelValues("off").Inc()
	m.ChannelCalled("channels off", 1200*time.Microsecond, nil)
	m.Allocations.WithLabelValues("GPU-1", "deny", "limit").Inc()
	m.AllocationWait.WithLabelValues("grant").Observe(0.5)
	m.SwapBytes.WithLabelValues("swap-out").Add(1e9)
	m.SwapSeconds.WithLabelValues("swap-out").Observe(0.8)
}

func TestMetricsGolden(t *testing.T) {
	m := collector.New()
	present(m)
	got := format(t, m)
	const path = "testdata/actuator.metrics"
	if os.Getenv("UPDATE_GOLDEN") != "" {
		if err := os.WriteFile(path, got, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer want.Close()
	if err := testutil.CollectAndCompare(m, want); err != nil {
		t.Errorf("%v\nUPDATE_GOLDEN=1 writes %s anew", err, path)
	}
}

func TestMetricsLint(t *testing.T) {
	m := collector.New()
	present(m)
	problems, err := testutil.CollectAndLint(m)
	if err != nil || len(problems) > 0 {
		t.Errorf("%v %v", problems, err)
	}
}

func TestNothingKnownIsAbsent(t *testing.T) {
	m := collector.New()
	if got := format(t, m); strings.Contains(string(got), "snapshot_age") {
		t.Errorf("%s", got)
	}
}

func format(t *testing.T, m *collector.Metrics) []byte {
	t.Helper()
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(m)
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	for _, f := range families {
		if _, err := expfmt.MetricFamilyToText(&b, f); err != nil {
			t.Fatal(err)
		}
	}
	return b.Bytes()
}

// A dry run stops nothing, so that no guardian is missed: LaxityGuardianDown must not fire.
func TestDryRunNeedsNoGuardian(t *testing.T) {
	for dry, want := range map[bool]bool{true: false, false: true} {
		m := collector.New()
		m.SetPresent(func() collector.Present { return collector.PresentOf(&state.State{DryRun: dry}) })
		if got := strings.Contains(string(format(t, m)), "laxity_actuator_guardian_up 0"); got != want {
			t.Errorf("dry run %v: guardian_up is there: %v", dry, got)
		}
	}
}

// A container and its successor of the same name are one: a series that is there twice would fail the
// scrape, and with it each alert.
func TestNamesakes(t *testing.T) {
	of := func(id string, gpu string) state.Container {
		return state.Container{
			ID: id, Name: "web", Off: true, SliceSeconds: 0.1, LeftAsItIs: state.ByGang, DeadlineUnmet: "late", MemoryUnguarded: "no",
			MemoryWaitGPU: gpu, MemoryDenied: map[string]time.Time{gpu: time.Unix(1, 0)}, Swapped: "why", Memory: []state.Memory{{GPU: gpu}},
		}
	}
	p := collector.PresentOf(&state.State{Containers: []state.Container{of("1", "GPU-1"), of("2", "GPU-2")}})
	m := collector.New()
	m.SetPresent(func() collector.Present { return p })
	text := string(format(t, m)) // fails where a series is there twice
	if !strings.Contains(text, `laxity_actuator_deadline_unmet{container="web"} 1`) {
		t.Errorf("%s", text)
	}
	if len(p.Waiting) != 1 || p.Waiting[0].GPU != "GPU-2" {
		t.Errorf("%+v is not of the successor", p.Waiting)
	}
}

// Who is held and why, and who comes first, is what the state says. Each container is held once.
func TestStandings(t *testing.T) {
	p := collector.PresentOf(&state.State{
		Holds: []record.Hold{{Container: "c", Cause: "memory"}},
		Containers: []state.Container{
			{Name: "a", SliceSeconds: 0.1}, {Name: "b", Off: true, SliceSeconds: 0.0005}, {Name: "c", Off: true},
			{Name: "d", LeftAsItIs: state.ByMPS}, {Name: "d", LeftAsItIs: state.ByGang},
		},
		GPUs: []state.GPU{
			{UUID: "GPU-1", Order: []string{"a", "b"}, Admitted: []string{"x"}},
			{UUID: "GPU-2", Admitted: []string{"c"}, Queue: []string{"d"}},
			{UUID: "GPU-3", Admitted: []string{"alone"}},
		},
	})
	if want := []collector.Held{{"c", "memory", collector.ByPause}, {"b", "arbitrate", collector.ByChannels}}; !slices.Equal(p.Held, want) {
		t.Errorf("held %v, want %v", p.Held, want)
	}
	if want := []collector.Slice{{"a", 0.1}, {"b", 0.0005}}; !slices.Equal(p.Slices, want) {
		t.Errorf("slices %v, want %v", p.Slices, want)
	}
	if want := []collector.Left{{"d", "gang"}}; !slices.Equal(p.Left, want) {
		t.Errorf("left as they are %v, want %v", p.Left, want)
	}
	if want := []collector.Place{{"a", "GPU-1", 1}, {"b", "GPU-1", 2}, {"c", "GPU-2", 1}, {"d", "GPU-2", 2}}; !slices.Equal(p.Places, want) {
		t.Errorf("places %v, want %v", p.Places, want)
	}
}
