package config

import (
	"cmp"
	"slices"
)

// Instances says on which MIG instances time slices, and channels off and on, may be used. The zero
// value is on none.
type Instances struct {
	// All: on all of them, of simulated cards.
	All bool
	// Proven are those, by UUID, on which a self-test showed that they work.
	Proven []string
	// Failed says of others, by UUID, why not.
	Failed map[string]string
}

// Unproven says why the instance is left as it is; empty: it is proven.
func (i Instances) Unproven(uuid string) string {
	if i.All || slices.Contains(i.Proven, uuid) {
		return ""
	}
	return cmp.Or(i.Failed[uuid], "no self-test has run there: they run when the actuator starts")
}
