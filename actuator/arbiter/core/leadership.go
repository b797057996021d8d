package core

import (
	"time"

	"github.com/laxity/laxity/actuator/decision"
)

// leadership is the right to act on the engine: of several actuators one has it.
type leadership struct {
	leads bool
	why   string // why we do not lead, for people
}

// Lead records who acts on the engine: we do, or another actuator does, and why.
func (k *Core) Lead(now time.Time, leads bool, why string) {
	k.now, k.leadership = now, leadership{leads, why}
	d := decision.Decision{Kind: decision.Service, Result: decision.Done, Reason: "this actuator acts on the engine"}
	if !leads {
		d.Result, d.Reason, d.Error = decision.Failed, "nothing is held", why
	}
	k.decideOnce("leadership", d)
}
