package account

// Computed returns how much of the time each process computed, by how long a context of each was on the
// card and by the driver's samples, which say who computed, and are few. All are parts of the time, 0–1.
//
// A context stays on the card while it is idle, as long as nobody else wants it. So presence is too
// long by what the card was idle in all, which the samples know well: they are right about the
// card, and wrong about whom they name. What the card was idle is taken from those who were present
// longer than the samples saw them compute, in proportion to that. While the card is never idle
// presence is the answer.
func Computed[K comparable](present, samples map[K]float64) map[K]float64 {
	idle, all, spare := 0.0, 0.0, map[K]float64{}
	for _, s := range samples {
		idle -= max(0, s)
	}
	for id, p := range present {
		idle += max(0, p)
		spare[id] = max(0, p-max(0, samples[id]))
		all += spare[id]
	}
	part := 0.0 // of what each has to spare
	if idle > 0 && all > 0 {
		part = min(1, idle/all)
	}
	out := make(map[K]float64, len(present))
	for id, p := range present {
		out[id] = max(0, p-part*spare[id])
	}
	return out
}
