package collector

import (
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// descs are the descriptions of the metrics that Collect makes anew for each scrape.
var descs []*prometheus.Desc

// labelName is a label of a metric, and which of its values belongs to it.
type labelName struct {
	name string
	at   int
}

// labelNames are the labels of each of descs, sorted by name as a metric has them.
var labelNames = map[*prometheus.Desc][]labelName{}

func describe(name, help string, labels ...string) *prometheus.Desc {
	d := prometheus.NewDesc(name, help, labels, nil)
	descs = append(descs, d)
	for i, l := range labels {
		labelNames[d] = append(labelNames[d], labelName{l, i})
	}
	slices.SortFunc(labelNames[d], func(a, b labelName) int { return strings.Compare(a.name, b.name) })
	return d
}

// containerGPU are the labels of everything that belongs to a task. A PID is never a label,
// because PIDs are unbounded. Nor is a command line, because it may hold secrets.
var containerGPU = []string{"container", "gpu"}

var (
	tasks = describe("gpu_tasks", "Unfinished GPU tasks of the container by state.", "container", "gpu", "state")

	taskStart = describe("gpu_task_start_timestamp_seconds",
		"When the unfinished task with the least float began (without deadlines: the oldest).", containerGPU...)
	taskDeadline = describe("gpu_task_deadline_timestamp_seconds",
		"When the unfinished task with the least float must be done.", containerGPU...)
	taskFloat = describe("gpu_task_float_seconds",
		"Time that the unfinished task with the least float has to spare before its deadline; negative once missed.", containerGPU...)

	taskRemaining = describe("gpu_task_remaining_seconds",
		"How long the unfinished task with the least float is expected to take yet: as long as the container's last one there, less the time that it ran, and at least a tenth of it. Absent without a deadline or a last task.", containerGPU...)
	taskAtRisk = describe("gpu_task_at_risk_float_seconds",
		"gpu_task_float_seconds of a task that is expected to take longer than that. Absent otherwise, and where the container's last task took less than 1 s: such a task ends before an alert can help.", containerGPU...)
	taskLate = describe("gpu_task_late_seconds",
		"How far past its deadline the container's unfinished task is, or its last one was when it ended, for 10 minutes after that. Absent otherwise. An unfinished busy interval is late once its end would be known: --busy.gap and 5 ms after its deadline.", containerGPU...)
	stopped = describe("gpu_stopped_seconds",
		"For how long a task of the container has been in this state (held, paused, swapped) without a break, the longest of them. Absent without any.", "container", "gpu", "state")
	taskWork = describe("gpu_task_work_seconds",
		"What the container's unfinished tasks are expected to need of the GPU yet, by its last task there, else by the longest last one of its image on this node, else all of the time until the deadline. Absent without a deadline.", containerGPU...)
	taskSlack = describe("gpu_task_slack_seconds",
		"How much more work could go first on the GPU without this container missing its deadline (earliest deadline first); negative where it is expected to miss it anyway.", containerGPU...)
	imageDuration = describe("gpu_image_task_duration_seconds",
		"How long the last tasks of the image's containers on this node took: the longest of them.", "image")

	lastStart    = describe("gpu_task_last_start_timestamp_seconds", "When the latest ended task began.", containerGPU...)
	lastEnd      = describe("gpu_task_last_end_timestamp_seconds", "When the latest ended task ended.", containerGPU...)
	lastDeadline = describe("gpu_task_last_deadline_timestamp_seconds", "When the latest ended task had to be done.", containerGPU...)
	lastFloat    = describe("gpu_task_last_float_seconds",
		"Time that the latest ended task had to spare when it ended; negative when it missed its deadline.", containerGPU...)
	lastHit = describe("gpu_task_last_deadline_hit", "Whether the latest ended task met its deadline (1) or not (0).", containerGPU...)

	tasksStarted   = describe("gpu_tasks_started_total", "GPU tasks that began.", containerGPU...)
	tasksCompleted = describe("gpu_tasks_completed_total",
		"GPU tasks that ended, by outcome: deadline hit or missed, none set, or end not seen (lost).", "container", "gpu", "outcome")

	containerDeadline = describe("gpu_container_deadline_seconds",
		"Deadline of each GPU task of the container, counted from its start.", "container")
	containerMemory = describe("gpu_container_memory_used_bytes",
		"GPU memory that all processes of the container hold, contexts included.", containerGPU...)
	containerSM = describe("gpu_container_sm_utilization_ratio",
		"Share of the multiprocessors' time that the container used over the driver's last samples.", containerGPU...)
	containerInfo = describe("gpu_container_info",
		"A container that may use a GPU: its id, image and class. Always 1.", "container", "id", "image", "class")

	gpuUtilization = describe("gpu_utilization_ratio",
		"Share of the driver's last sample period in which a kernel ran.", "gpu")
	gpuMemoryUsed     = describe("gpu_memory_used_bytes", "GPU memory in use.", "gpu")
	gpuMemoryTotal    = describe("gpu_memory_total_bytes", "GPU memory of the card or MIG instance.", "gpu")
	gpuMemoryFree     = describe("gpu_memory_free_bytes", "GPU memory that is not in use.", "gpu")
	gpuMemoryPressure = describe("gpu_memory_pressure_ratio", "Share of the GPU memory that is in use, from 0.9 on. Absent below that.", "gpu")
	gpuMemoryIdle     = describe("gpu_memory_idle_bytes", "Free memory of a GPU that is open and has nothing to do. Absent otherwise.", "gpu")
	gpuUnfinished     = describe("gpu_unfinished_tasks", "Unfinished GPU tasks on the GPU, in whatever state.", "gpu")
	gpuDemand         = describe("gpu_demand_seconds", "The work that the GPU has admitted: gpu_task_work_seconds of all containers.", "gpu")
	gpuOpen           = describe("gpu_open",
		"Whether the GPU can take a new container (1): memory is left, and if the GPU is fully used, then by tasks with a deadline, whose work is known. A past miss does not close it.", "gpu")
	gpuProvisionable = describe("gpu_memory_provisionable_bytes",
		"Free memory of a GPU whose nodeState (P2) is 1: memory is left, the GPU is not fully used, and no container that is there missed its last deadline; 0 where it is not.", "gpu")
	lastFloats = describe("laxity_exporter_float_seconds",
		"P2's nodeFloattime: what the last tasks of the containers that are there had to spare, summed up; one on several GPUs counts once, with its least. +Inf where none had a deadline.")
	gpuInfo = describe("gpu_info", "A GPU or MIG instance: its index (0, or 0:1 for an instance), name and driver version. Always 1.", "gpu", "index", "name", "driver")

	gpuPower      = describe("gpu_power_watts", "Power that the card draws, mean of the driver's last sample period.", "gpu")
	gpuPowerLimit = describe("gpu_power_limit_watts", "Power that the card may draw.", "gpu")
	gpuEnergy     = describe("gpu_energy_joules_total", "Energy that the card has used since its driver was loaded.", "gpu")
	gpuTemp       = describe("gpu_temperature_celsius", "Temperature of the card, by place: gpu or memory.", "gpu", "sensor")
	gpuClock      = describe("gpu_clock_hertz", "Clock of the card now, by part: sm or memory.", "gpu", "clock")
	gpuThrottled  = describe("gpu_throttled",
		"Whether the card lowers its clocks now (1) for this reason. Low clocks because nothing runs, or because somebody set them, do not count.", "gpu", "reason")
	gpuXids = describe("gpu_xid_errors_total",
		"Errors that the driver reported for the card since the exporter began, by Xid number. Absent until the first of a number.", "gpu", "xid")
	gpuLastXid = describe("gpu_xid_last_timestamp_seconds",
		"When the last error of this Xid number was read from the driver. Absent until the first of a number since the exporter began.", "gpu", "xid")
	gpuECC = describe("gpu_ecc_errors_total",
		"Memory errors over the card's life, by kind: corrected or uncorrected.", "gpu", "kind")
	gpuPCIe = describe("gpu_pcie_throughput_bytes_per_second",
		"What the card sends (transmit) and gets (receive) over PCIe: a sample of 20 ms, taken each 5 s.", "gpu", "direction")
	gpuNVLink = describe("gpu_nvlink_bytes_total",
		"Payload that the card has sent (transmit) and got (receive) over all NVLinks since its driver was loaded.", "gpu", "direction")
	gpuSwitches = describe("gpu_context_switches_per_second",
		"How often the card goes over to another process's work, by the driver's trace of context switches: all of them, or a sample of 0.1 s each second where there are more than 150. Absent where the trace cannot be read, and on MIG.", "gpu")
	gpuMIG = describe("gpu_mig_instance_info",
		"A MIG instance and its card. Always 1. The condition (power, temperature, errors) is the card's.", "gpu", "card")
	gpuMIGCard = describe("gpu_mig_card_info",
		"A card that is cut into MIG instances: its index and name. Always 1. gpu_info has its instances.", "gpu", "index", "name")

	containerSeconds = describe("gpu_container_gpu_seconds_total",
		"Time in which the container's work was on the GPU: how long its context was there by the driver's trace of context switches (of all of the time, or of a tenth of each second where there are many), less what the card was idle. Where gpu_context_switches_per_second is absent, by the driver's samples, five a second: then containers that share the GPU may each have a sixth more or less. Under time slicing the sum over containers never exceeds the wall clock. Absent on MIG.", containerGPU...)
	containerEnergy = describe("gpu_container_energy_joules_total",
		"Energy that the container's work has used beyond the card's idle power: each second's energy divided by the containers' shares of the time, weighted with what each is estimated to draw. With gpu_unattributed_energy_joules_total it adds up to the growth of gpu_energy_joules_total since the exporter began.", containerGPU...)
	otherSeconds = describe("gpu_other_gpu_seconds_total",
		"Time in which work of processes outside of containers was on the GPU.", "gpu")
	unattributedEnergy = describe("gpu_unattributed_energy_joules_total",
		"Energy that is no container's, by reason: idle (what the card draws while nobody computes, counted all the time), other (processes outside of containers), unknown (nobody knows who computed).", "gpu", "reason")

	cardsUp = describe("laxity_exporter_cards_up",
		"Whether the condition of the cards (power, temperature, errors) can be read (1).")
	deviceUp = describe("laxity_exporter_device_up",
		"Whether the GPU device answers (1). While it does not, GPU metrics are absent and tasks are as last seen.")
	gpuUp = describe("laxity_exporter_gpu_up",
		"Whether this GPU answers (1), and says which processes it has. While it does not, its tasks are as last seen.", "gpu")
	engineUp = describe("laxity_exporter_engine_up",
		"Whether the container engine answers (1). While it does not, containers are as last seen.")
	sensorInUse = describe("laxity_exporter_sensor_in_use",
		"How starts of tasks are learned now (1): uprobe, fanotify or device.", "sensor")
	eventsLost = describe("laxity_exporter_sensor_events_lost_total",
		"How often events of the start sensor found no room, because the exporter did not get its turn in time. Starts that are lost so are known by the device's list at best.")
	unattributed = describe("laxity_exporter_unattributed_processes",
		"GPU processes that belong to no known container, by reason.", "reason")
	invalidLabels = describe("laxity_exporter_invalid_labels",
		"Labels laxity.* of the container that cannot be read; the log names them. Absent without any.", "container")
	snapshotAge = describe("laxity_exporter_snapshot_age_seconds",
		"Time since the device last confirmed the facts.")
)

// newHistogram makes a histogram by labels, with classic buckets and native ones. A Prometheus that
// scrapes native histograms takes those alone: one series instead of one for each bucket.
func newHistogram(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: name, Help: help, Buckets: buckets,
		NativeHistogramBucketFactor:     1.1,
		NativeHistogramMaxBucketNumber:  100,
		NativeHistogramMinResetDuration: time.Hour,
	}, labels)
}

// Classic buckets. They are few, since each is a series of each container.
var (
	// taskSeconds are for what a task takes: a request of milliseconds, or a job of an hour.
	taskSeconds = []float64{.01, .05, .25, 1, 5, 15, 60, 300, 1800}
	// lostSeconds are for time that a task lost, most often none: then the quantile is 0 too,
	// and not somewhere in the first bucket.
	lostSeconds = []float64{0, .01, .1, 1, 10, 60, 600}
)

func newDurations() *prometheus.HistogramVec {
	return newHistogram("gpu_task_duration_seconds", "Time from start to end of ended GPU tasks.", taskSeconds, containerGPU...)
}

func newTardiness() *prometheus.HistogramVec {
	return newHistogram("gpu_task_tardiness_seconds", "How far past their deadlines GPU tasks ended; 0 for those in time.", lostSeconds, containerGPU...)
}

func newHeld() *prometheus.HistogramVec {
	return newHistogram("gpu_task_held_seconds",
		"How long ended GPU tasks had stood still: held (their channels off the GPU, or stopped), or their container paused. Absent until one has.",
		lostSeconds, containerGPU...)
}

func newPolls() *prometheus.HistogramVec {
	return newHistogram("laxity_exporter_poll_duration_seconds", "Time that one reading of the GPU device took.",
		[]float64{1e-4, .001, .01, .1, 1}, "result")
}

func newDropped() prometheus.Counter {
	return prometheus.NewCounter(prometheus.CounterOpts{Name: "laxity_exporter_series_dropped_total",
		Help: "Series left out of scrapes because of the limit on series; each scrape adds those that it left out."})
}
