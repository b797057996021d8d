package allocator

import "slices"

// unlock finds requests that would wait for ever: in a circle, or for a share that cannot grow because
// the others wait too. It grants a request that only fairness holds back; else it swaps a container
// out; else it denies the last request in order.
func (b *bank) unlock(answers []Answer) {
	for {
		stuck := b.stuck(answers)
		if i := b.relax(answers, stuck); i >= 0 {
			r := answers[i].Request
			b.take(b.all[r.Container], r)
			answers[i] = Answer{Request: r, Verdict: Grant, Why: Free, Reason: "more than its share, because those who could give some back wait too"}
			continue
		}
		first := b.blocked(answers, stuck)
		if first < 0 {
			return
		}
		if v := b.evictable(answers, stuck, answers[first].Request); v != "" {
			answers[first].Victims = []string{v}
			answers[first].Reason += "; they wait for each other, so " + b.all[v].Name + " is to be swapped out"
			return
		}
		for _, i := range slices.Backward(stuck) {
			if a := &answers[i]; b.holds(b.all[a.Request.Container]) {
				a.Verdict, a.Why = Deny, Deadlock
				a.Reason = "it and others wait for each other for memory, and it is the last in order: " + a.Reason
				return
			}
		}
		return
	}
}

// stuck returns the requests (indices of answers, in order) that could not be granted even if all
// containers that do not wait for memory ended, and then all whose requests can be granted, and so
// on. Who may not begin yet begins only when no other one holds memory, and is not among them itself.
func (b *bank) stuck(answers []Answer) []int {
	var waiting []int
	leaves := map[string]bool{} // to be swapped out
	for i, a := range answers {
		if a.Verdict == Wait {
			waiting = append(waiting, i)
		}
		for _, v := range a.Victims {
			leaves[v] = true
		}
	}
	if len(waiting) == 0 {
		return nil
	}
	then := b.State
	then.Containers, then.Requests = nil, nil
	for _, i := range waiting {
		if r := answers[i].Request; !leaves[r.Container] {
			then.Requests = append(then.Requests, r)
		}
	}
	for _, id := range b.ids {
		c := *b.all[id]
		waits := slices.ContainsFunc(then.Requests, func(r Request) bool { return b.all[r.Container].job() == c.job() })
		if c.Never || c.Stays || waits {
			then.Containers = append(then.Containers, c)
		}
	}
	for then.end() || then.open() {
	}
	return slices.DeleteFunc(waiting, func(i int) bool {
		return answers[i].Why == Barred || !slices.ContainsFunc(then.Requests, func(r Request) bool { return r.ID == answers[i].Request.ID })
	})
}

// end removes a job whose requests could all be granted. It reports whether there was one.
func (s *State) end() bool {
	b := newBank(*s)
	refused := map[string]bool{} // by job; absent: it asks for nothing
	var before []Answer
	for _, r := range s.Requests {
		c := b.all[r.Container]
		if slices.ContainsFunc(b.mates(c), func(m *Container) bool { return m.Stays }) {
			continue
		}
		a := b.room(c, r, before)
		before = append(before, a)
		refused[c.job()] = refused[c.job()] || a.Verdict != Grant
	}
	i := slices.IndexFunc(s.Containers, func(c Container) bool {
		no, asked := refused[c.job()]
		return asked && !no
	})
	if i < 0 {
		return false
	}
	job := s.Containers[i].job()
	s.Containers = slices.DeleteFunc(s.Containers, func(c Container) bool { return c.job() == job && !c.Never })
	s.Requests = slices.DeleteFunc(s.Requests, func(r Request) bool { return b.all[r.Container].job() == job })
	return true
}

// open lets those begin who might not, once nobody holds memory. It reports whether there was one.
func (s *State) open() (barred bool) {
	for _, c := range s.Containers {
		for _, held := range c.Held {
			if held > 0 {
				return false
			}
		}
	}
	for i := range s.Containers {
		barred = barred || s.Containers[i].Barred != ""
		s.Containers[i].Barred = ""
	}
	return barred
}

// relax returns the first request in order that is stuck by fairness alone although there is room; −1:
// none.
func (b *bank) relax(answers []Answer, stuck []int) int {
	for _, i := range stuck {
		a := answers[i]
		fairness := a.Why == Shared || a.Why == Behind || a.Why == Unsafe && b.Share.Divides()
		if fairness && a.Request.Bytes <= b.free(a.Request.GPU) && (b.Share.Divides() || b.harms(b.all[a.Request.Container], a.Request) == "") {
			return i
		}
	}
	return -1
}

// blocked returns the first request in order that could be granted with the memory that the others of
// the circle hold; −1: none.
func (b *bank) blocked(answers []Answer, stuck []int) int {
	for _, i := range stuck {
		r := answers[i].Request
		free := b.leftFree(answers, stuck, r.GPU)
		have := free
		for _, id := range b.circling(answers, stuck) {
			if b.all[id].job() != b.all[r.Container].job() {
				have = add(have, b.all[id].Held[r.GPU])
			}
		}
		if r.Bytes > free && r.Bytes <= have {
			return i
		}
	}
	return -1
}

// leftFree is what is free on a GPU once all containers have ended that are not stuck.
func (b *bank) leftFree(answers []Answer, stuck []int, gpu string) uint64 {
	n := b.capacity(gpu)
	who := b.circling(answers, stuck)
	for _, id := range b.ids {
		if c := b.all[id]; !c.Never && (c.Stays || slices.Contains(who, id)) {
			n = sub(n, c.Held[gpu])
		}
	}
	return n
}

// circling lists the containers of these requests' jobs, each once, in order.
func (b *bank) circling(answers []Answer, stuck []int) []string {
	var who []string
	for _, i := range stuck {
		for _, m := range b.mates(b.all[answers[i].Request.Container]) {
			if !slices.Contains(who, m.ID) {
				who = append(who, m.ID)
			}
		}
	}
	return who
}

// evictable returns the last container in order, of the circle, that can be swapped out and holds memory
// that r waits for.
func (b *bank) evictable(answers []Answer, stuck []int, r Request) string {
	for _, id := range slices.Backward(b.circling(answers, stuck)) {
		if c := b.all[id]; c.job() != b.all[r.Container].job() && c.Swappable && c.Held[r.GPU] > 0 {
			return id
		}
	}
	return ""
}
