package collector

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// descs are the descriptions of the metrics that Collect makes anew for each scrape.
var descs []*prometheus.Desc

func describe(name, help string, labels ...string) *prometheus.Desc {
	d := prometheus.NewDesc(name, help, labels, nil)
	descs = append(descs, d)
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
	gpuMemoryUsed  = describe("gpu_memory_used_bytes", "GPU memory in use.", "gpu")
	gpuMemoryTotal = describe("gpu_memory_total_bytes", "GPU memory of the card or MIG instance.", "gpu")
	gpuInfo        = describe("gpu_info", "A GPU or MIG instance: its index, name and driver version. Always 1.", "gpu", "index", "name", "driver")

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

// newHistogram makes a native histogram by labels, with classic buckets too if asked for.
func newHistogram(name, help string, classic bool, buckets []float64, labels ...string) *prometheus.HistogramVec {
	opts := prometheus.HistogramOpts{
		Name: name, Help: help,
		NativeHistogramBucketFactor:     1.1,
		NativeHistogramMaxBucketNumber:  100,
		NativeHistogramMinResetDuration: time.Hour,
	}
	if classic {
		opts.Buckets = buckets
	}
	return prometheus.NewHistogramVec(opts, labels)
}

// taskSeconds are classic buckets for what a task takes.
var taskSeconds = []float64{.01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 25, 60, 120, 300, 600, 1800, 3600}

func newDurations(classic bool) *prometheus.HistogramVec {
	return newHistogram("gpu_task_duration_seconds", "Time from start to end of ended GPU tasks.", classic, taskSeconds, containerGPU...)
}

func newTardiness(classic bool) *prometheus.HistogramVec {
	return newHistogram("gpu_task_tardiness_seconds", "How far past their deadlines GPU tasks ended; 0 for those in time.", classic, taskSeconds, containerGPU...)
}

func newHeld(classic bool) *prometheus.HistogramVec {
	return newHistogram("gpu_task_held_seconds",
		"How long ended GPU tasks had stood still: held (their channels off the GPU, or stopped), or their container paused. Absent until one has.",
		classic, taskSeconds, containerGPU...)
}

func newPolls(classic bool) *prometheus.HistogramVec {
	return newHistogram("laxity_exporter_poll_duration_seconds", "Time that one reading of the GPU device took.",
		classic, prometheus.ExponentialBuckets(1e-5, 4, 10), "result")
}

func newDropped() prometheus.Counter {
	return prometheus.NewCounter(prometheus.CounterOpts{Name: "laxity_exporter_series_dropped_total",
		Help: "Series left out of scrapes because of the limit on series; each scrape adds those that it left out."})
}
