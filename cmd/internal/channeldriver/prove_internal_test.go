package channeldriver

import (
	"errors"
	"maps"
	"slices"
	"testing"

	"github.com/laxity/laxity/exporter/device"
	"github.com/laxity/laxity/internal/rm/selftest"
)

// A MIG instance that fails its self-test is left as it is; a whole card that fails, or nothing that works, is an error.
func TestEachGPUIsTested(t *testing.T) {
	card, a, b := device.GPU{UUID: "GPU-0"}, device.GPU{UUID: "MIG-a", Index: 1, Parent: "GPU-1"}, device.GPU{UUID: "MIG-b", Index: 1, Parent: "GPU-1"}
	for _, tc := range []struct {
		name           string
		gpus           []device.GPU
		fails          []string
		proven, failed []string
		how            int
		wrong          bool
	}{
		{"a card", []device.GPU{card}, nil, nil, nil, 1, false},
		{"a card that fails", []device.GPU{card, a}, []string{"GPU-0"}, nil, nil, 0, true},
		{"instances", []device.GPU{a, b}, nil, []string{"MIG-a", "MIG-b"}, nil, 2, false},
		{"one instance fails", []device.GPU{a, b}, []string{"MIG-a"}, []string{"MIG-b"}, []string{"MIG-a"}, 1, false},
		{"all instances fail beside a card", []device.GPU{card, a, b}, []string{"MIG-a", "MIG-b"}, nil, []string{"MIG-a", "MIG-b"}, 1, false},
		{"all that is here fails", []device.GPU{a, b}, []string{"MIG-a", "MIG-b"}, nil, []string{"MIG-a", "MIG-b"}, 0, true},
	} {
		is, err := each(tc.gpus, func(g device.GPU) (selftest.Result, error) {
			if slices.Contains(tc.fails, g.UUID) {
				return selftest.Result{}, errors.New("slices are inert")
			}
			return selftest.Result{Switch: true, Slices: true}, nil
		})
		failed := slices.Sorted(maps.Keys(is.instances.Failed))
		if (err != nil) != tc.wrong || len(is.how) != tc.how || is.instances.All ||
			!slices.Equal(is.instances.Proven, tc.proven) || !slices.Equal(failed, tc.failed) {
			t.Errorf("%s: %+v, %v", tc.name, is, err)
		}
	}
}
