package collector

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Memory is what one container holds of one GPU, in bytes.
type Memory struct {
	Container, GPU string
	// Limit is its own; 0: none. Share is what it is entitled to, Lent what it holds
	// above that.
	Limit, Held, Share, Lent uint64
}

// Waiting is the oldest allocation of a container that waits.
type Waiting struct {
	Container, GPU string
	Seconds        float64
}

// Denied is when a container was last refused memory.
type Denied struct {
	Container, GPU string
	Time           time.Time
}

// Swapped is a container that is off its GPUs: what it needs to come back, bytes, and since when.
type Swapped struct {
	Container, GPU string
	Bytes          uint64
	Since          time.Time
	Stuck          bool
}

// memoryMetrics are about GPU memory.
type memoryMetrics struct {
	// Allocations counts, by GPU, verdict (grant after a wait, wait, deny) and kind of
	// reason, those that were not simply granted.
	Allocations *prometheus.CounterVec
	// AllocationWait observes how long allocations waited, by verdict.
	AllocationWait *prometheus.HistogramVec
	// SwapBytes counts what was swapped, SwapSeconds how long that took, by
	// direction (swap-out, swap-in).
	SwapBytes   *prometheus.CounterVec
	SwapSeconds *prometheus.HistogramVec
}

var (
	perPart          = []string{"container", "gpu"}
	limitDesc        = prometheus.NewDesc(namespace+"memory_limit_bytes", "GPU memory that the container may hold by its own limit (laxity.gpu-memory). Absent without one.", perPart, nil)
	heldDesc         = prometheus.NewDesc(namespace+"memory_held_bytes", "GPU memory that the container holds, grants that the device does not show yet included.", perPart, nil)
	shareDesc        = prometheus.NewDesc(namespace+"memory_share_bytes", "GPU memory that the container is entitled to (--memory-share).", perPart, nil)
	lentDesc         = prometheus.NewDesc(namespace+"memory_lent_bytes", "GPU memory that the container holds above its share.", perPart, nil)
	waitingDesc      = prometheus.NewDesc(namespace+"memory_waiting_seconds", "How long the oldest allocation of the container that waits has waited. Absent if none does.", perPart, nil)
	unguardedDesc    = prometheus.NewDesc(namespace+"memory_unguarded", "1 for a container with a limit of GPU memory (laxity.gpu-memory) whose allocations are not denied here, as laxity why says: it is only watched, and paused beyond. Absent if they are.", []string{"container"}, nil)
	deniedDesc       = prometheus.NewDesc(namespace+"memory_denied_timestamp_seconds", "When the container was last refused GPU memory. Absent if it never was.", perPart, nil)
	swappedDesc      = prometheus.NewDesc(namespace+"memory_swapped_bytes", "GPU memory of a container that is swapped out. Absent if it is not.", perPart, nil)
	swappedSinceDesc = prometheus.NewDesc(namespace+"swapped_timestamp_seconds", "When the container was swapped out. Absent if it is not.", []string{"container"}, nil)
	swapStuckDesc    = prometheus.NewDesc(namespace+"swap_stuck", "1 for a container whose swap could be neither ended nor undone.", []string{"container"}, nil)
)

func newMemoryMetrics() memoryMetrics {
	m := memoryMetrics{
		Allocations: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: namespace + "allocations_total", Help: "Allocations of GPU memory that were denied, made to wait, or granted after a wait, by kind of reason.",
		}, []string{"gpu", "verdict", "reason"}),
		AllocationWait: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: namespace + "allocation_wait_seconds", Help: "How long allocations of GPU memory waited until they were granted or denied.",
			Buckets: []float64{.001, .01, .1, 1, 10, 60, 300}, NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 60,
		}, []string{"verdict"}),
		SwapBytes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: namespace + "swap_bytes_total", Help: "GPU memory of containers that were swapped.",
		}, []string{"direction"}),
		SwapSeconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: namespace + "swap_duration_seconds", Help: "Time of a swap with all its steps.",
			Buckets: []float64{.25, .5, 1, 2, 5, 10, 20, 60}, NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 60,
		}, []string{"direction"}),
	}
	for _, direction := range []string{"swap-out", "swap-in"} {
		m.SwapBytes.WithLabelValues(direction)
		m.SwapSeconds.WithLabelValues(direction)
	}
	for _, verdict := range []string{"grant", "deny"} {
		m.AllocationWait.WithLabelValues(verdict)
	}
	return m
}

func (m *memoryMetrics) parts() []prometheus.Collector {
	return []prometheus.Collector{m.Allocations, m.AllocationWait, m.SwapBytes, m.SwapSeconds}
}

func memoryDescs() []*prometheus.Desc {
	return []*prometheus.Desc{limitDesc, heldDesc, shareDesc, lentDesc, waitingDesc, deniedDesc, unguardedDesc, swappedDesc, swappedSinceDesc, swapStuckDesc}
}

func collectMemory(p Present, gauge func(d *prometheus.Desc, v float64, labels ...string)) {
	for _, x := range p.Memory {
		if x.Limit > 0 {
			gauge(limitDesc, float64(x.Limit), x.Container, x.GPU)
		}
		gauge(heldDesc, float64(x.Held), x.Container, x.GPU)
		gauge(shareDesc, float64(x.Share), x.Container, x.GPU)
		gauge(lentDesc, float64(x.Lent), x.Container, x.GPU)
	}
	for _, w := range p.Waiting {
		gauge(waitingDesc, w.Seconds, w.Container, w.GPU)
	}
	for _, x := range p.Denied {
		gauge(deniedDesc, float64(x.Time.UnixMilli())/1000, x.Container, x.GPU)
	}
	for _, container := range p.Unguarded {
		gauge(unguardedDesc, 1, container)
	}
	told := map[string]bool{} // a container may have several GPUs
	for _, s := range p.Swapped {
		gauge(swappedDesc, float64(s.Bytes), s.Container, s.GPU)
		if told[s.Container] {
			continue
		}
		told[s.Container] = true
		gauge(swappedSinceDesc, float64(s.Since.UnixMilli())/1000, s.Container)
		if s.Stuck {
			gauge(swapStuckDesc, 1, s.Container)
		}
	}
}
