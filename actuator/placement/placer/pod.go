package placer

import (
	"cmp"
	"context"
	"slices"

	"github.com/laxity/laxity/actuator/placement"
	"github.com/laxity/laxity/actuator/placement/reservation"
)

// PlacePod reserves a GPU for the pod on the best of the nodes named in among, in place of what was
// reserved under its name before. The ranking is of those of the
// nodes that are known. Where none of them can take the pod nothing is reserved, and the entry is
// zero. Where ctx ends first, nothing is reserved either: nobody waits for the answer. The errors
// are SourceError, that of ctx, and what the disk says.
func (p *Placer) PlacePod(ctx context.Context, pod reservation.Pod, among []string, req Request) (reservation.Entry, placement.Ranking, error) {
	return p.placeAmong(ctx, &pod, among, req)
}

// PlaceAmong is PlacePod for a container of another scheduler, which no name tells: the reservation ends when
// its time is over.
func (p *Placer) PlaceAmong(ctx context.Context, among []string, req Request) (reservation.Entry, placement.Ranking, error) {
	return p.placeAmong(ctx, nil, among, req)
}

func (p *Placer) placeAmong(ctx context.Context, pod *reservation.Pod, among []string, req Request) (placed reservation.Entry, ranking placement.Ranking, err error) {
	if err := p.estimate(ctx, &req, nil); err != nil {
		return placed, nil, err
	}
	// All that is known of a few hundred nodes is cheaper than a query that names them.
	err = p.apply(ctx, &job{nodes: among, all: len(among) > longest, do: func(v *draft) error {
		if err := ctx.Err(); err != nil {
			return err // what is reserved may be of a pod that was asked about since
		}
		var former string
		if pod != nil {
			former = v.takeOver(*pod)
		}
		ranking = p.o.Method.Rank(v.among(among), req.Request, v.now)
		if best, ok := ranking.Best(); ok {
			placed = v.reserve(best, req)
			if pod != nil {
				placed.Pod, placed.Former = *pod, former
			}
			v.keep(placed)
		}
		return nil
	}})
	if err == nil && placed.ID != "" && p.unwanted(ctx, []reservation.Entry{placed}) {
		err = ctx.Err()
	}
	if err != nil {
		return reservation.Entry{}, nil, err
	}
	return placed, ranking, nil
}

// ForgetPod ends what is reserved under the pod's name, for a pod that is to be bound and needs nothing.
func (p *Placer) ForgetPod(ctx context.Context, pod reservation.Pod) error {
	if !p.o.Reservations.HasPod(pod) { // so with nearly all pods of a cluster
		return nil
	}
	return p.apply(ctx, &job{do: func(v *draft) error {
		v.takeOver(pod)
		return nil
	}})
}

// takeOver ends what is reserved under the name of a pod that is to be bound: for this pod, whose last
// attempt failed, or for an earlier pod of its name, which is gone. What that one's container still
// holds is in the facts. It returns the id of that container, if any.
func (v *draft) takeOver(pod reservation.Pod) (former string) {
	for id, e := range v.entries {
		if !e.Pod.SameName(pod) {
			continue
		}
		if e.Pod.UID != pod.UID {
			v.p.o.Logger.Info("Placement ended: its pod is gone, another one has its name", "placement", id, "node", e.Node, "pod", e.Pod.String(), "uid", e.Pod.UID, "successor", pod.UID)
		}
		former = cmp.Or(e.Container, e.Former, former)
		v.giveBack(id)
		v.forget(id)
	}
	return former
}

// among returns those of the nodes that have these names.
func (v *draft) among(names []string) []placement.Node {
	wanted := make(map[string]bool, len(names))
	for _, name := range names {
		wanted[name] = true
	}
	return slices.DeleteFunc(slices.Clone(v.nodes), func(n placement.Node) bool { return !wanted[n.Name] })
}

// PodOn is a pod, namespace/name, on a node.
type PodOn struct{ Node, Pod string }

// Use is which container of a pod, by its id, uses which GPU.
type Use struct{ Container, GPU string }

// awaited are the pods whose containers are to appear.
func awaited(entries []reservation.Entry) []PodOn {
	var out []PodOn
	for _, e := range entries {
		if e.Pod != (reservation.Pod{}) && e.Container == "" {
			out = append(out, podOn(e))
		}
	}
	return out
}

func podOn(e reservation.Entry) PodOn { return PodOn{e.Node, e.Pod.String()} }

// claim looks whether a pod has appeared that is waited for. A reservation is of one container, and
// of a pod's containers whichever uses the GPU: another one holds nothing. It is of the GPU that the
// node gave it. Until then it stays, for a pod that is there may take long to begin.
func (p *Placer) claim(v *draft, e reservation.Entry, uses map[PodOn]Use) {
	use, there := uses[podOn(e)]
	switch {
	case !there, e.Former != "" && use.Container == e.Former:
		return
	case use != Use{}:
		e.State, e.Container, e.GPU, e.Expires = reservation.Created, use.Container, use.GPU, v.now.Add(p.o.TTL)
	case e.Expires.Sub(v.now) < p.o.TTL/2: // not at each look: it is written to disk
		e.Expires = v.now.Add(p.o.TTL)
	default:
		return
	}
	v.keep(e)
}
