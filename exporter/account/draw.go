package account

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
// it. The card tells one figure for all. But who computes changes, so that each reading is an
// equation: energy = Σ time × power. A Kalman filter solves them one after another; the powers may
// drift.
type draw struct {
	ids   []string
	watts []float64   // the estimates
	cov   [][]float64 // their covariance, W²
	mean  float64     // W, of any work on this card; what is expected of a container not seen yet
}

const (
	doubt      = 1.0   // of a new container's power: the standard deviation, in means
	drift      = 0.02  // of a power in one second of its work, in means
	shareError = 0.05  // of a reading, because the shares are samples
	energyStep = 1.0   // J: how exactly a card tells its energy
	meanWeight = 0.1   // of a new reading in the mean
	mostDraws  = 64    // containers that are estimated one by one; the rest count as the mean
	leastWatts = 0.001 // so that whoever computed gets a part
)

// divide returns the part of each in joules, which times (s) say who worked how long. The parts add up
// to joules.
func (d *draw) divide(joules float64, times map[string]float64) map[string]float64 {
	sum := 0.0
	for _, t := range times {
		sum += t
	}
	if sum <= 0 || joules <= 0 {
		return nil
	}
	if d.mean == 0 {
		d.mean = joules / sum
	}
	d.mean += (joules/sum - d.mean) * meanWeight
	d.learn(joules, times)

	parts, all := map[string]float64{}, 0.0
	for id, t := range times {
		parts[id] = t * max(leastWatts, d.of(id))
		all += parts[id]
	}
	for id := range parts {
		parts[id] *= joules / all
	}
	return parts
}

// of returns the estimate for a container, W.
func (d *draw) of(id string) float64 {
	if i := d.index(id); i >= 0 {
		return d.watts[i]
	}
	return d.mean
}

func (d *draw) index(id string) int {
	for i, known := range d.ids {
		if known == id {
			return i
		}
	}
	return -1
}

// learn is one step of the filter.
func (d *draw) learn(joules float64, times map[string]float64) {
	expected := 0.0
	for id, t := range times {
		if d.index(id) < 0 && len(d.ids) < mostDraws {
			d.add(id)
		}
		expected += t * d.of(id)
	}
	s := make([]float64, len(d.ids)) // the equation's left side
	for i, id := range d.ids {
		s[i] = times[id]
		d.cov[i][i] += drift * drift * d.mean * d.mean * s[i]
	}
	covS := make([]float64, len(s))
	uncertain := shareError*joules + energyStep
	noise := uncertain * uncertain
	for i := range s {
		for j := range s {
			covS[i] += d.cov[i][j] * s[j]
		}
		noise += s[i] * covS[i]
	}
	for i := range s {
		d.watts[i] += covS[i] / noise * (joules - expected)
		for j := range s {
			d.cov[i][j] -= covS[i] * covS[j] / noise
		}
	}
	for i := range s { // rounding must not make a variance negative
		d.cov[i][i] = max(d.cov[i][i], 0)
		d.watts[i] = max(d.watts[i], 0)
	}
}

func (d *draw) add(id string) {
	for i := range d.cov {
		d.cov[i] = append(d.cov[i], 0)
	}
	d.ids, d.watts = append(d.ids, id), append(d.watts, d.mean)
	row := make([]float64, len(d.ids))
	row[len(row)-1] = doubt * d.mean * doubt * d.mean
	d.cov = append(d.cov, row)
}

func (d *draw) forget(id string) {
	i := d.index(id)
	if i < 0 {
		return
	}
	d.ids = append(d.ids[:i], d.ids[i+1:]...)
	d.watts = append(d.watts[:i], d.watts[i+1:]...)
	d.cov = append(d.cov[:i], d.cov[i+1:]...)
	for j := range d.cov {
		d.cov[j] = append(d.cov[j][:i], d.cov[j][i+1:]...)
	}
}
