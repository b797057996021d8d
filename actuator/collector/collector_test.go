package collector_test

import (
	"bytes"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/common/expfmt"

	"github.com/laxity/laxity/actuator/collector"
)

func present(m *collector.Metrics) {
	now := time.Unix(1000, 0)
	m.SetClock(func() time.Time { return now })
	m.SetPresent(func() collector.Present {
		return collector.Present{Holds: 2, Inbox: 1, GuardianUp: true, StrayStops: 3, Ready: true, PauseInstead: true, SnapshotTime: now.Add(-250 * time.Millisecond),
			Arbitrated: map[string]bool{"GPU-1": true, "GPU-2": false},
			Memory: []collector.Memory{{Container: "a", GPU: "GPU-1", Limit: 4, Held: 3, Share: 2, Lent: 1},
				{Container: "b", GPU: "GPU-1", Held: 1, Share: 2}},
			Waiting:   []collector.Waiting{{Container: "b", GPU: "GPU-1", Seconds: 1.5}},
			Unguarded: []string{"a"},
			Denied:    []collector.Denied{{Container: "b", GPU: "GPU-1", Time: now}},
			Swapped: []collector.Swapped{{Container: "c", GPU: "GPU-1", Bytes: 7}, {Container: "d", GPU: "GPU-1", Bytes: 8, Stuck: true},
				{Container: "d", GPU: "GPU-2", Bytes: 9, Stuck: true}}}
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
