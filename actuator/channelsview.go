package actuator

import (
	"cmp"
	"maps"
	"slices"
)

// holdNow is how containers are kept from computing.
func (l *loop) holdNow() HoldMode {
	if l.divides() {
		return HoldChannels
	}
	return HoldPause
}

// order lists the containers on a GPU by who comes first.
func (k *channelKeeper) order(gpu string) (ids []string) {
	if k == nil || k.gpus[gpu] == nil {
		return nil
	}
	standings := k.gpus[gpu].plan.Standings
	pids := slices.SortedFunc(maps.Keys(standings), func(a, b string) int {
		return cmp.Or(cmp.Compare(standings[a].Rank, standings[b].Rank), cmp.Compare(a, b))
	})
	for _, pid := range pids {
		t := k.tenants[pid]
		if t != nil && standings[pid].Rank > 0 && !slices.Contains(ids, t.container) {
			ids = append(ids, t.container)
		}
	}
	return ids
}

// acts reports whether something of the container is not its own.
func (k *channelKeeper) acts(container string) bool {
	if k == nil {
		return false
	}
	for _, t := range k.tenants {
		if t.container == container && t.changed() {
			return true
		}
	}
	return false
}

// orderState says where a container stands: of several processes, the first in line.
func (l *loop) orderState(s *ContainerState) {
	if l.channels == nil {
		return
	}
	rank := 0
	for id, t := range l.channels.tenants {
		is, planned := l.channels.gpu(t.gpu).plan.Standings[id]
		if t.container != s.ID || !planned || s.Order != "" && is.Rank >= rank {
			continue
		}
		rank = is.Rank
		s.Order, s.Off, s.SliceSeconds = is.Reason, t.stands.Off, t.stands.Slice.Seconds()
	}
	if s.Order == "" && l.divides() && s.Managed && !s.NeverPause {
		s.Order = l.leftAlone(s)
	}
}

// leftAlone says why a container is left as it is on a GPU whose time is divided; empty
// where there is nothing to say.
func (l *loop) leftAlone(s *ContainerState) string {
	for _, t := range l.channels.tenants {
		if t.container == s.ID && t.left != "" {
			return "left as it is: " + t.left
		}
	}
	c, _ := l.snap.FindContainer(s.ID)
	for _, p := range c.Processes {
		if len(p.GPUs) > 1 && slices.ContainsFunc(p.GPUs, l.arbitrated) {
			return "left as it is: it computes on several GPUs"
		}
	}
	return ""
}
