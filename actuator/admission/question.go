package admission

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/laxity/laxity/exporter/task"
)

// Question asks whether a deadline or a share can be kept, for a container that does not run yet.
type Question struct {
	// Node is empty for this node. GPU is a UUID or an index (task.Snapshot.GPUName), empty for any.
	Node, GPU string
	// Image selects the history. Server: its tasks are requests.
	Image  string
	Server bool
	// Deadline of each task; 0: none. Estimate is how long a task runs; 0: as the history says.
	Deadline, Estimate time.Duration
	// Share of the GPU's time, above 0 and at most 1; 0: none.
	Share float64
}

// Values are the parameters of GET /api/v1/admission.
func (q Question) Values() url.Values {
	v := url.Values{}
	set := func(name, text string, set bool) {
		if set {
			v.Set(name, text)
		}
	}
	set("node", q.Node, q.Node != "")
	set("gpu", q.GPU, q.GPU != "")
	set("image", q.Image, q.Image != "")
	set("release", string(task.ReleaseBusy), q.Server)
	set("deadline", q.Deadline.String(), q.Deadline > 0)
	set("estimate", q.Estimate.String(), q.Estimate > 0)
	set("share", fmt.Sprintf("%v%%", 100*q.Share), q.Share > 0)
	return v
}

// ParseQuestion reads what Values returns. Its error says what to write instead.
func ParseQuestion(v url.Values) (q Question, err error) {
	for name, values := range v {
		text := values[0]
		if text == "" {
			continue
		}
		switch name {
		case "node":
			q.Node = text
		case "gpu":
			q.GPU = text
		case "image":
			q.Image = task.ImageName(text)
		case "deadline":
			q.Deadline, err = task.ParseDeadline(text)
		case "estimate":
			q.Estimate, err = task.ParseDeadline(text)
		case "share":
			q.Share, err = task.ParseShare(text)
		case "release":
			if q.Server = text == string(task.ReleaseBusy); !q.Server && text != string(task.ReleaseProcess) {
				err = fmt.Errorf("%q is not a release: write process or busy", text)
			}
		default:
			err = fmt.Errorf("no such parameter (write one of %s)", strings.Join([]string{"node", "gpu", "image", "deadline", "estimate", "share", "release"}, ", "))
		}
		if err != nil {
			return Question{}, fmt.Errorf("%s: %w", name, err)
		}
	}
	return q, nil
}

// ErrNoSuchPlace means that the question names a node or GPU of which nothing is known here.
var ErrNoSuchPlace = errors.New("nothing is known of it here")

// Result is the kind of an Answer.
type Result string

// The results.
const (
	Met     Result = "met"     // it can be kept
	Unmet   Result = "unmet"   // it cannot
	Unknown Result = "unknown" // there is no history
)

// Answer to a Question.
type Answer struct {
	Result Result `json:"result"`
	// Reason is a sentence for people without its full stop; empty if the promise can be kept.
	Reason string `json:"reason,omitempty"`
	// Node and GPU are where it was asked for. Of several GPUs this is the first that can keep it,
	// else the one with the earliest deadline.
	Node string `json:"node,omitempty"`
	GPU  string `json:"gpu,omitempty"`
	// EarliestDeadline is the earliest that could be met there, seconds; 0: none, or unknown.
	EarliestDeadline float64 `json:"earliest_deadline_seconds,omitempty"`
}
