package crio

import (
	"slices"
	"testing"

	"github.com/laxity/laxity/exporter/container"
	"github.com/laxity/laxity/internal/cri"
)

// Each pair of looks tells a whole life, whatever was missed between them.
func TestDifferences(t *testing.T) {
	const none = ""
	at := func(state cri.State, paused bool) map[string]seen {
		if state == none {
			return nil
		}
		return map[string]seen{"a": {state: state, paused: paused}}
	}
	for _, tt := range []struct {
		was       cri.State
		wasPaused bool
		is        cri.State
		isPaused  bool
		want      []container.EventKind
	}{
		{none, false, none, false, nil},
		{none, false, cri.Created, false, nil},
		{none, false, cri.Running, false, []container.EventKind{container.Started}},
		{none, false, cri.Running, true, []container.EventKind{container.Started}}, // described as paused
		{none, false, cri.Exited, false, []container.EventKind{container.Started, container.Died}},
		{cri.Created, false, cri.Created, false, nil},
		{cri.Created, false, cri.Running, false, []container.EventKind{container.Started}},
		{cri.Created, false, cri.Exited, false, []container.EventKind{container.Started, container.Died}},
		{cri.Created, false, none, false, []container.EventKind{container.Removed}},
		{cri.Running, false, cri.Running, false, nil},
		{cri.Running, true, cri.Running, true, nil},
		{cri.Running, false, cri.Running, true, []container.EventKind{container.Paused}},
		{cri.Running, true, cri.Running, false, []container.EventKind{container.Unpaused}},
		{cri.Running, true, cri.Exited, false, []container.EventKind{container.Died}},
		{cri.Running, false, none, false, []container.EventKind{container.Died, container.Removed}},
		{cri.Exited, false, cri.Exited, false, nil},
		{cri.Exited, false, none, false, []container.EventKind{container.Removed}},
	} {
		var got []container.EventKind
		for _, c := range differences(at(tt.was, tt.wasPaused), at(tt.is, tt.isPaused)) {
			if c.id != "a" {
				t.Errorf("of %q", c.id)
			}
			got = append(got, c.kind)
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%q (paused %v) to %q (paused %v): %v, want %v", tt.was, tt.wasPaused, tt.is, tt.isPaused, got, tt.want)
		}
	}
}
