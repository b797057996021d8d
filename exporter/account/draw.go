package account

import (
	"maps"
	"slices"
)

// idle is what a card draws while nobody computes, W. It is 0 until the card was seen so.
type idle struct{ watts float64 }

// idleRise is how fast the idle power follows upwards, s: what the card draws just after work is
// more than it will. Downwards it follows at once.
const idleRise = 30

func (i *idle) learn(joules, seconds float64) {
	if seconds <= 0 {
		return
	}
	watts := joules / seconds
	if i.watts == 0 || watts < i.watts {
		i.watts = watts
		return
	}
	i.watts += (watts - i.watts) * min(1, seconds/idleRise)
}

// draw estimates what the card draws for each container beyond its idle power, and divides energy by
// it. The card tells one figure for all. But who computes changes, so that each mix of containers is an
// equation: power = Σ share × the container's power. A Kalman filter solves them one after another; the
// powers may drift. A mix is one equation however long it lasts: the error of its shares is the same
// in each of its seconds.
type draw struct {
	powers
	mean float64 // W, of any work on this card; what is expected of a container not seen yet
}

// powers are estimates and their doubts.
type powers struct {
	ids   []string
	watts []float64
	cov   [][]float64 // W²
}

const (
	doubt      = 1.0   // of a new container's power: the standard deviation, in means
	drift      = 0.01  // of a power in one second of its work, in means
	powerError = 0.03  // of a mix: switches draw too, and no program draws the same beside another
	energyStep = 1.0   // J: how exactly a card tells its energy
	meanWeight = 0.5   // of a mix in the mean
	mostDraws  = 64    // containers that are estimated one by one; the rest count as the mean
	leastWatts = 0.001 // so that whoever computed gets a part
	leastPart  = 1e-9  // W: keeps the sum of the parts from being nothing
)

// divide returns the part of each in joules: of the containers with the given shares, now that the mix is
// as it is. The parts add up to joules.
func (d *draw) divide(joules float64, shares map[string]float64, mix times) map[string]float64 {
	if joules <= 0 {
		return nil
	}
	now := d.with(mix)
	parts, all := map[string]float64{}, 0.0
	for id, s := range shares {
		parts[id] = max(leastPart, s*max(leastWatts, now.of(id, d.mean)))
		all += parts[id]
	}
	for id := range parts {
		parts[id] *= joules / all
	}
	return parts
}

// settle keeps what a mix that has ended taught.
func (d *draw) settle(ended times) {
	if work := ended.sum(); work > 0 {
		d.powers = d.with(ended)
		d.mean += (ended.joules/work - d.mean) * meanWeight
	}
}

// with returns the estimates after one step of the filter, by a mix.
func (d *draw) with(mix times) powers {
	work := mix.sum()
	if work <= 0 {
		return d.powers
	}
	if d.mean == 0 {
		d.mean = mix.joules / work
	}
	p := d.clone()
	for _, id := range slices.Sorted(maps.Keys(mix.of)) {
		if p.index(id) < 0 && len(p.ids) < mostDraws {
			p.add(id, d.mean)
		}
	}
	expected, square := 0.0, 0.0
	for id := range mix.of {
		w := p.of(id, d.mean)
		expected += mix.share(id) * w
		square += mix.share(id) * w * w
	}
	watts := mix.joules / mix.seconds
	uncertain := powerError*watts + energyStep/mix.seconds
	// The second part is the variance of the power if each sample is one container's: that of a half and a
	// half has a share's variance of 1/4.
	off := mix.shareError()
	noise := uncertain*uncertain + max(0, square-expected*expected)*4*off*off
	s := make([]float64, len(p.ids)) // the equation's left side
	for i, id := range p.ids {
		s[i] = mix.share(id)
		p.cov[i][i] += drift * drift * d.mean * d.mean * mix.of[id]
	}
	p.learn(s, watts-expected, noise)
	return p
}

func (p powers) clone() powers {
	p.ids, p.watts, p.cov = slices.Clone(p.ids), slices.Clone(p.watts), slices.Clone(p.cov)
	for i := range p.cov {
		p.cov[i] = slices.Clone(p.cov[i])
	}
	return p
}

// of returns the estimate for a container, W, or what is expected of one that is not known.
func (p powers) of(id string, unknown float64) float64 {
	if i := p.index(id); i >= 0 {
		return p.watts[i]
	}
	return unknown
}

func (p powers) index(id string) int { return slices.Index(p.ids, id) }

// learn is one step of the filter.
func (p *powers) learn(s []float64, off, noise float64) {
	covS := make([]float64, len(s))
	for i := range s {
		for j := range s {
			covS[i] += p.cov[i][j] * s[j]
		}
		noise += s[i] * covS[i]
	}
	for i := range s {
		p.watts[i] += covS[i] / noise * off
		for j := range s {
			p.cov[i][j] -= covS[i] * covS[j] / noise
		}
	}
	for i := range s { // rounding must not make a variance negative
		p.cov[i][i] = max(p.cov[i][i], 0)
		p.watts[i] = max(p.watts[i], 0)
	}
}

func (p *powers) add(id string, watts float64) {
	for i := range p.cov {
		p.cov[i] = append(p.cov[i], 0)
	}
	p.ids, p.watts = append(p.ids, id), append(p.watts, watts)
	row := make([]float64, len(p.ids))
	row[len(row)-1] = doubt * watts * doubt * watts
	p.cov = append(p.cov, row)
}

func (p *powers) forget(id string) {
	i := p.index(id)
	if i < 0 {
		return
	}
	p.ids = slices.Delete(p.ids, i, i+1)
	p.watts = slices.Delete(p.watts, i, i+1)
	p.cov = slices.Delete(p.cov, i, i+1)
	for j := range p.cov {
		p.cov[j] = slices.Delete(p.cov[j], i, i+1)
	}
}
