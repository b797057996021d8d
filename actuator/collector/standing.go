package collector

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/laxity/laxity/actuator/state"
)

// Held is a container that is kept from computing. Cause is a plan.Cause; By is ByPause or ByChannels.
type Held struct{ Container, Cause, By string }

// The ways of holding.
const (
	ByPause    = "pause"
	ByChannels = "channels"
)

// turn is the cause of a container whose channels are off because it is not its turn.
const turn = "arbitrate"

// Slice is the time slice that a container was given, in seconds.
type Slice struct {
	Container string
	Seconds   float64
}

// Left is a container that is left as it is. Cause is a state.Cause.
type Left struct{ Container, Cause string }

// Place is where a container stands on a GPU (UUID): 1 comes first.
type Place struct {
	Container, GPU string
	Place          int
}

var (
	containerHeldDesc = prometheus.NewDesc(namespace+"container_held",
		"1 while the container is kept from computing, by cause (arbitrate: it is another one's turn; relieve: the GPU's memory is nearly full; pause: an alert or a person asked for it; memory: its GPU memory is needed, or there is none for it) and by what means: pause or channels. Absent else.",
		[]string{"container", "cause", "by"}, nil)
	sliceDesc = prometheus.NewDesc(namespace+"slice_seconds",
		"Time slice that the container was given. Absent where it has its own.", []string{"container"}, nil)
	placeDesc = prometheus.NewDesc(namespace+"queue_place",
		"Where the container stands on the GPU: 1 comes first. Absent where nobody shares the GPU or waits for it.", []string{"container", "gpu"}, nil)
	leftDesc = prometheus.NewDesc(namespace+"container_left_as_it_is",
		"1 while the container is left as it is though its labels ask for an order, by cause (mps: it computes through an MPS server, or one of its gang does; gang: its gang is not ordered as one here; labels: those of its gang disagree; mig: no self-test has shown that channels can be controlled on its MIG instance; several_gpus: it computes on several GPUs; failed: its channels were not found, or a call failed, which is tried again). Absent else.",
		[]string{"container", "cause"}, nil)
	standingDescs = []*prometheus.Desc{containerHeldDesc, sliceDesc, placeDesc, leftDesc}
)

func collectStandings(p Present, gauge func(d *prometheus.Desc, v float64, labels ...string)) {
	for _, h := range p.Held {
		gauge(containerHeldDesc, 1, h.Container, h.Cause, h.By)
	}
	for _, s := range p.Slices {
		gauge(sliceDesc, s.Seconds, s.Container)
	}
	for _, l := range p.Left {
		gauge(leftDesc, 1, l.Container, l.Cause)
	}
	for _, q := range p.Places {
		gauge(placeDesc, float64(q.Place), q.Container, q.GPU)
	}
}

// standingsOf fills in who is held, has a slice, and stands where; each container once.
func (p *Present) standingsOf(s *state.State, containers []state.Container) {
	first := once[string]{}
	for _, h := range s.Holds {
		if first.see(h.Container) {
			p.Held = append(p.Held, Held{Container: h.Container, Cause: h.Cause, By: ByPause})
		}
	}
	for _, c := range containers {
		if c.Off && first.see(c.Name) {
			p.Held = append(p.Held, Held{Container: c.Name, Cause: turn, By: ByChannels})
		}
		if c.LeftAsItIs != "" {
			p.Left = append(p.Left, Left{Container: c.Name, Cause: string(c.LeftAsItIs)})
		}
		if c.SliceSeconds > 0 {
			p.Slices = append(p.Slices, Slice{Container: c.Name, Seconds: c.SliceSeconds})
		}
	}
	for _, g := range s.GPUs {
		order := g.Order
		if len(order) == 0 {
			order = slices.Concat(g.Admitted, g.Queue)
		}
		if len(order) < 2 { // it is alone
			continue
		}
		placed := once[string]{}
		for i, name := range order {
			if placed.see(name) {
				p.Places = append(p.Places, Place{Container: name, GPU: g.UUID, Place: i + 1})
			}
		}
	}
}

type once[T comparable] map[T]bool

// see says whether this is the first time.
func (o once[T]) see(v T) bool {
	seen := o[v]
	o[v] = true
	return !seen
}
