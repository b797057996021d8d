package tracker

import (
	"time"

	"github.com/laxity/laxity/exporter/task"
	"github.com/laxity/laxity/exporter/tracker/core"
)

// report passes a fact to the observers and the log.
func (l *loop) report(f core.Fact) {
	switch f.Kind {
	case core.Began:
		l.log.Debug("task began", "container", f.Task.Container, "pid", f.Task.PID, "gpu", f.GPU,
			"start", f.Task.Start.Time, "source", f.Task.Start.Source)
		for _, o := range l.opt.Observers {
			o.Began(f.Task, f.GPU)
		}
	case core.Ended:
		l.log.Debug("task ended", "container", f.Task.Container, "pid", f.Task.PID,
			"outcome", f.Task.Outcome(), "source", f.Task.End.Source)
		for _, o := range l.opt.Observers {
			o.Ended(f.Task)
		}
	case core.Missed:
		l.log.Debug("a task was not counted: the engine did not report its container", "container", f.Task.ContainerID, "pid", f.Task.PID)
	case core.Appeared:
		for _, bad := range f.Container.Invalid {
			l.log.Warn("a label is invalid", "container", f.Container.Name,
				"label", bad.Label, "value", bad.Value, "hint", bad.Hint)
		}
		l.discover(f.Container.PID)
		l.hurry()
	case core.Moved:
		l.discover(f.Container.PID)
	}
}

// unwatched logs a process that uses a GPU and cannot be watched, at most once in
// unwatchedRest. Many processes may have the same trouble, and each is tried again at every
// reading.
func (l *loop) unwatched(pid int, err error) {
	if now := time.Now(); now.Sub(l.unwatchedAt) >= unwatchedRest {
		l.unwatchedAt = now
		l.log.Warn("a process that uses a GPU cannot be watched: its task is not counted", "pid", pid, "err", err)
	}
}

// reportHealth logs when a part fails, fails for another reason, or works again.
func (l *loop) reportHealth(h task.Health) {
	l.reportPart("GPU device", l.reported.DeviceUp, h.DeviceUp, l.reported.DeviceError, h.DeviceError)
	l.reportPart("container engine", l.reported.EngineUp, h.EngineUp, l.reported.EngineError, h.EngineError)
	if h.CardsError != "" && l.reported.CardsError == "" {
		l.log.Warn("the condition of the cards cannot be read; their power, temperature and errors are absent", "err", h.CardsError)
	}
	switch {
	case h.Sensor == l.reported.Sensor && h.SensorReason == l.reported.SensorReason:
	case h.SensorReason == "":
		l.log.Info("starts are learned by", "sensor", h.Sensor)
	default:
		l.log.Info("starts are learned by", "sensor", h.Sensor, "not_by", h.SensorReason)
	}
	if n := h.EventsLost - l.reported.EventsLost; n > 0 {
		l.log.Warn("the start sensor dropped events for want of room: those starts are known from the device's list at best; give the exporter more processor time (--nice)",
			"sensor", h.Sensor, "lost", n)
	}
	l.reported = h
}

func (l *loop) reportPart(what string, was, is bool, old, reason string) {
	switch {
	case is && reason == "" && (!was || old != ""):
		l.log.Info(what + " answers")
	case reason != "" && reason != old:
		l.log.Warn(what+" does not work; its facts are as last seen", "err", reason)
	}
}
