package run

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/laxity/laxity/actuator/admission"
	"github.com/laxity/laxity/actuator/placement/api"
	"github.com/laxity/laxity/exporter/task"
	"github.com/laxity/laxity/internal/plain"
)

// Require says what --require asks for.
type Require string

// The values of --require.
const (
	RequireNothing  Require = ""
	RequirePossible Require = "possible" // refuse what is known not to work
	RequireKnown    Require = "known"    // refuse what is not known to work
)

// ExitRefused is the exit code when --require refused: no container was made.
const ExitRefused = 122

// errRefused marks errors for which the exit code is ExitRefused.
var errRefused = errors.New("refused (--require)")

// exitOf is the exit code of an error before a container was made.
func exitOf(s Spec, err error) int {
	var refused *api.RefusedError
	if errors.Is(err, errRefused) || s.Require != RequireNothing && errors.As(err, &refused) && (refused.Code == 409 || refused.Code == 422) {
		return ExitRefused
	}
	return ExitFailed
}

// question is what --require has to ask of the actuator on the node.
func (s Spec) question(p *api.Placement) (admission.Question, error) {
	labels, invalid := task.ParseLabels(s.Labels)
	if len(invalid) > 0 {
		return admission.Question{}, invalid[0]
	}
	q := admission.Question{Image: task.ImageName(s.Image), Share: labels.Share, Server: labels.Release == task.ReleaseBusy}
	if labels.Class != task.ClassBatch {
		q.Deadline = labels.Deadline.Duration()
	}
	if q.Deadline == 0 && q.Share == 0 {
		return q, errors.New("--require: there is nothing to require; write --deadline, or --label laxity.share=30%")
	}
	if s.Estimate != "" {
		q.Estimate, _ = task.ParseDeadline(s.Estimate) // Parse has read it
	}
	if p != nil {
		q.Node, q.GPU = p.Node, p.GPU
	}
	return q, nil
}

// required asks whether the deadline, or the share, can be kept on the chosen GPU, or on each that the user has
// chosen; on any of this node's where none was. An error that is errRefused means that it cannot, or that nobody knows
// and --require=known.
func (r *Runner) required(ctx context.Context, s Spec, p *api.Placement) error {
	if s.Require == RequireNothing {
		return nil
	}
	q, err := s.question(p)
	if err != nil {
		return err
	}
	gpus := []string{q.GPU}
	if (p == nil || s.NoGPURequest) && len(s.HandGPUs) > 0 {
		gpus = s.HandGPUs
	}
	for _, q.GPU = range gpus {
		if err := r.admitted(ctx, s, q); err != nil {
			return err
		}
	}
	return nil
}

func (r *Runner) admitted(ctx context.Context, s Spec, q admission.Question) error {
	a, err := bounded{r.Placements}.Admission(ctx, q)
	if err != nil {
		return fmt.Errorf("whether the deadline can be met is not known (leave --require out to start all the same): %w", err)
	}
	where := ""
	if a.Node != "" {
		where = " on node " + a.Node
	}
	switch a.Result {
	case admission.Met:
		return nil
	case admission.Unknown:
		if s.Require == RequireKnown {
			return fmt.Errorf("%w: %s; with --estimate, or with --require alone, it starts", errRefused, a.Reason)
		}
		fmt.Fprintf(plain.NewWriter(r.Stderr), "laxity: it starts, and nobody can say whether its deadline can be met: %s (--require=known refuses then)\n", a.Reason)
		return nil
	default:
		return fmt.Errorf("%w%s: %s%s", errRefused, where, a.Reason, earliest(q, a))
	}
}

func earliest(q admission.Question, a admission.Answer) string {
	switch d := task.Seconds(a.EarliestDeadline).Duration(); {
	case q.Deadline == 0 || a.Result != admission.Unmet:
		return ""
	case d == 0:
		return "; no deadline could be met there now"
	default:
		return fmt.Sprintf("; a deadline of %v could be met there now", roundUp(d))
	}
}

// roundUp leaves two digits that count, and is never less.
func roundUp(d time.Duration) time.Duration {
	unit := time.Duration(1)
	for d/unit >= 100 {
		unit *= 10
	}
	return (d + unit - 1) / unit * unit
}
