package collector

import dto "github.com/prometheus/client_model/go"

// family is what all series of one name share.
type family struct {
	name, help string
	kind       dto.MetricType
	labels     []string
	at         int // its place in families
}

// families are those that a Collector has.
var families []*family

func declare(kind dto.MetricType, name, help string, labels ...string) *family {
	f := &family{name, help, kind, labels, len(families)}
	families = append(families, f)
	return f
}

func gauge(name, help string, labels ...string) *family {
	return declare(dto.MetricType_GAUGE, name, help, labels...)
}

func counter(name, help string, labels ...string) *family {
	return declare(dto.MetricType_COUNTER, name, help, labels...)
}

func histogram(name, help string, labels ...string) *family {
	return declare(dto.MetricType_HISTOGRAM, name, help, labels...)
}

// container and gpu are the labels of everything that belongs to a task. Never a
// PID, never a command line: the one has no bound, the other leaks secrets.
var containerGPU = []string{"container", "gpu"}

var (
	famTasks = gauge("gpu_tasks", "Unfinished GPU tasks of the container by state.", "container", "gpu", "state")

	famStart = gauge("gpu_task_start_timestamp_seconds",
		"When the unfinished task with the least float began (without deadlines: the oldest).", containerGPU...)
	famDeadline = gauge("gpu_task_deadline_timestamp_seconds",
		"When the unfinished task with the least float must be done.", containerGPU...)
	famFloat = gauge("gpu_task_float_seconds",
		"Time that the unfinished task with the least float has to spare before its deadline; negative once missed.", containerGPU...)

	famLastStart    = gauge("gpu_task_last_start_timestamp_seconds", "When the latest ended task began.", containerGPU...)
	famLastEnd      = gauge("gpu_task_last_end_timestamp_seconds", "When the latest ended task ended.", containerGPU...)
	famLastDeadline = gauge("gpu_task_last_deadline_timestamp_seconds", "When the latest ended task had to be done.", containerGPU...)
	famLastFloat    = gauge("gpu_task_last_float_seconds",
		"Time that the latest ended task had to spare when it ended; negative when it missed its deadline.", containerGPU...)
	famLastHit = gauge("gpu_task_last_deadline_hit", "Whether the latest ended task met its deadline (1) or not (0).", containerGPU...)

	famStarted   = counter("gpu_tasks_started_total", "GPU tasks that began.", containerGPU...)
	famCompleted = counter("gpu_tasks_completed_total",
		"GPU tasks that ended, by outcome: deadline hit or missed, none set, or end not seen (lost).", "container", "gpu", "outcome")

	famDuration  = histogram("gpu_task_duration_seconds", "Time from start to end of ended GPU tasks.", containerGPU...)
	famTardiness = histogram("gpu_task_tardiness_seconds", "How far past their deadlines GPU tasks ended; 0 for those in time.", containerGPU...)
	famHeld      = histogram("gpu_task_held_seconds",
		"How long ended GPU tasks had stood still: held (their channels off the GPU, or stopped), or their container paused. Absent until one has.", containerGPU...)

	famContainerDeadline = gauge("gpu_container_deadline_seconds",
		"Deadline of each GPU task of the container, counted from its start.", "container")
	famContainerMemory = gauge("gpu_container_memory_used_bytes",
		"GPU memory that all processes of the container hold, contexts included.", containerGPU...)
	famContainerSM = gauge("gpu_container_sm_utilization_ratio",
		"Share of the multiprocessors' time that the container used over the driver's last samples.", containerGPU...)
	famContainerInfo = gauge("gpu_container_info",
		"A container that may use a GPU: its id, image and class. Always 1.", "container", "id", "image", "class")

	famGPUUtilization = gauge("gpu_utilization_ratio",
		"Share of the driver's last sample period in which a kernel ran.", "gpu")
	famGPUMemoryUsed  = gauge("gpu_memory_used_bytes", "GPU memory in use.", "gpu")
	famGPUMemoryTotal = gauge("gpu_memory_total_bytes", "GPU memory of the card or MIG instance.", "gpu")
	famGPUInfo        = gauge("gpu_info", "A GPU or MIG instance: its index, name and driver version. Always 1.", "gpu", "index", "name", "driver")

	famDeviceUp = gauge("laxity_exporter_device_up",
		"Whether the GPU device answers (1). While it does not, GPU metrics are absent and tasks are as last seen.")
	famGPUUp = gauge("laxity_exporter_gpu_up",
		"Whether this GPU answers (1), and says which processes it has. While it does not, its tasks are as last seen.", "gpu")
	famEngineUp = gauge("laxity_exporter_engine_up",
		"Whether the container engine answers (1). While it does not, containers are as last seen.")
	famSensor = gauge("laxity_exporter_sensor_in_use",
		"How starts of tasks are learned now (1): uprobe, fanotify or device.", "sensor")
	famEventsLost = counter("laxity_exporter_sensor_events_lost_total",
		"How often events of the start sensor found no room, because the exporter did not get its turn in time. Starts that are lost so are known by the device's list at best.")
	famUnattributed = gauge("laxity_exporter_unattributed_processes",
		"GPU processes that belong to no known container, by reason.", "reason")
	famInvalid = gauge("laxity_exporter_invalid_labels",
		"Labels laxity.* of the container that cannot be read; the log names them. Absent without any.", "container")
	famPolls = histogram("laxity_exporter_poll_duration_seconds", "Time that one reading of the GPU device took.", "result")
	famAge   = gauge("laxity_exporter_snapshot_age_seconds",
		"Time since the device last confirmed the facts.")
	famDropped = counter("laxity_exporter_series_dropped_total",
		"Series left out of scrapes because of the limit on series; each scrape adds those that it left out.")
)
