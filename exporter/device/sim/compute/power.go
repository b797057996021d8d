package compute

import "time"

// Draw sets what the unit draws while the owner computes, in W, beyond what it always draws.
func (u *Unit) Draw(now time.Time, owner Owner, watts float64) {
	u.Advance(now)
	u.watts[owner] = watts
}

// DrawAtFirst sets what the unit draws for owners of whom Draw says nothing, in W.
func (u *Unit) DrawAtFirst(watts float64) { u.anybody = watts }

// Energy is what the owners' work has used so far, in J.
func (u *Unit) Energy() float64 { return u.energy }

// Power is the mean of what the owners' work drew in the last period, in W.
func (u *Unit) Power(period time.Duration) float64 {
	watts := 0.0
	for owner, m := range u.meter {
		watts += u.drawOf(owner) * m.Share(u.now.Add(-period), u.now)
	}
	return watts
}

// Spent is how long each owner has computed so far, also of owners that are forgotten.
func (u *Unit) Spent() map[Owner]time.Duration { return u.spent }

func (u *Unit) drawOf(owner Owner) float64 {
	if w, ok := u.watts[owner]; ok {
		return w
	}
	return u.anybody
}

// spend notes that the owner computed for d.
func (u *Unit) spend(owner Owner, d time.Duration) {
	u.spent[owner] += d
	u.energy += u.drawOf(owner) * d.Seconds()
}
