package collector

import "github.com/prometheus/client_golang/prometheus"

// container and gpu are the labels of everything that belongs to a task. Never a
// PID, never a command line: the one has no bound, the other leaks secrets.
var containerGPU = []string{"container", "gpu"}

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, labels, nil)
}

var (
	descTasks = desc("gpu_tasks", "Unfinished GPU tasks of the container by state.", "container", "gpu", "state")

	descStart = desc("gpu_task_start_timestamp_seconds",
		"When the unfinished task with the least float began (without deadlines: the oldest).", containerGPU...)
	descDeadline = desc("gpu_task_deadline_timestamp_seconds",
		"When the unfinished task with the least float must be done.", containerGPU...)
	descFloat = desc("gpu_task_float_seconds",
		"Time that the unfinished task with the least float has to spare before its deadline; negative once missed.", containerGPU...)

	descLastStart    = desc("gpu_task_last_start_timestamp_seconds", "When the latest ended task began.", containerGPU...)
	descLastEnd      = desc("gpu_task_last_end_timestamp_seconds", "When the latest ended task ended.", containerGPU...)
	descLastDeadline = desc("gpu_task_last_deadline_timestamp_seconds", "When the latest ended task had to be done.", containerGPU...)
	descLastFloat    = desc("gpu_task_last_float_seconds",
		"Time that the latest ended task had to spare when it ended; negative when it missed its deadline.", containerGPU...)
	descLastHit = desc("gpu_task_last_deadline_hit", "Whether the latest ended task met its deadline (1) or not (0).", containerGPU...)

	descStarted   = desc("gpu_tasks_started_total", "GPU tasks that began.", containerGPU...)
	descCompleted = desc("gpu_tasks_completed_total",
		"GPU tasks that ended, by outcome: deadline hit or missed, none set, or end not seen (lost).", "container", "gpu", "outcome")

	descContainerDeadline = desc("gpu_container_deadline_seconds",
		"Deadline of each GPU task of the container, counted from its start.", "container")
	descContainerMemory = desc("gpu_container_memory_used_bytes",
		"GPU memory that all processes of the container hold, contexts included.", containerGPU...)
	descContainerSM = desc("gpu_container_sm_utilization_ratio",
		"Share of the multiprocessors' time that the container used over the driver's last samples.", containerGPU...)
	descContainerInfo = desc("gpu_container_info",
		"A container that may use a GPU: its id, image and class. Always 1.", "container", "id", "image", "class")

	descGPUUtilization = desc("gpu_utilization_ratio",
		"Share of the driver's last sample period in which a kernel ran.", "gpu")
	descGPUMemoryUsed  = desc("gpu_memory_used_bytes", "GPU memory in use.", "gpu")
	descGPUMemoryTotal = desc("gpu_memory_total_bytes", "GPU memory of the card or MIG instance.", "gpu")
	descGPUInfo        = desc("gpu_info", "A GPU or MIG instance: its index, name and driver version. Always 1.",
		"gpu", "index", "name", "driver")

	descDeviceUp = desc("laxity_exporter_device_up",
		"Whether the GPU device answers (1). While it does not, GPU metrics are absent and tasks are as last seen.")
	descEngineUp = desc("laxity_exporter_engine_up",
		"Whether the container engine answers (1). While it does not, containers are as last seen.")
	descSensor = desc("laxity_exporter_sensor_in_use",
		"How starts of tasks are learned now (1): uprobe, fanotify or device.", "sensor")
	descUnattributed = desc("laxity_exporter_unattributed_processes",
		"GPU processes that belong to no known container, by reason.", "reason")
	descInvalid = desc("laxity_exporter_invalid_labels",
		"Labels laxity.* of the container that cannot be read; the log names them. Absent without any.", "container")
	descAge = desc("laxity_exporter_snapshot_age_seconds",
		"Time since the device last confirmed the facts.")
	descDropped = desc("laxity_exporter_series_dropped_total",
		"Series left out of scrapes because of the limit on series; each scrape adds those that it left out.")
)
