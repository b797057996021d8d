package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/laxity/laxity/actuator/config"
	"github.com/laxity/laxity/actuator/source"
	"github.com/laxity/laxity/actuator/state"
	"github.com/laxity/laxity/cmd/internal/usage"
	"github.com/laxity/laxity/cmd/internal/view"
	"github.com/laxity/laxity/exporter/task"
)

const deadlineHelp = `Change the deadline of a running container's GPU tasks.

  laxity deadline web 5s
  laxity deadline web 250ms
  laxity deadline web none                back to the label

The change holds for its unfinished tasks and for all that begin later. It outlives the exporter
and ends with the container. Laxity acts only on containers with a laxity.* label: for others the
change says how they fare, and changes nothing else.`

const shareHelp = `Change the share of the GPU's time that a running container is sure of while others want it.

  laxity share web 30%
  laxity share web 12.5%
  laxity share web none                   back to the label

It counts at once. It outlives the exporter and ends with the container. --share.max of the exporter
bounds it. Shares and the batch floor that add up to more than 100 % on a GPU are cut in proportion:
laxity why CONTAINER says so. Only containers with a laxity.* label have their share kept, and only
where GPU time is divided by slices (laxity check).`

// addChanges adds a command for each setting that can be changed at run time.
func (c *cli) addChanges() {
	add := func(setting, help, values string) {
		var exporter, container, text string
		acts := standingSource{cli: c}
		cmd := c.command(setting, help, func(ctx context.Context, _ *slog.Logger) error {
			change, err := task.ParseChange(setting, text)
			if err != nil {
				return usage.Wrong(err)
			}
			said, err := c.change(ctx, exporter, &acts, container, change)
			fmt.Fprint(c.out, said)
			return err
		})
		addExporter(cmd, &exporter)
		if setting == task.SettingShare {
			acts.register(cmd, ", which knows whether shares are kept. It need not run.")
		}
		cmd.Arg("container", "Name or id.").Required().HintAction(containers(&exporter)).StringVar(&container)
		cmd.Arg(setting, values).Required().HintOptions("none").StringVar(&text)
		c.quiet[setting] = true
	}
	add(task.SettingDeadline, deadlineHelp, "9s, 250ms, a number of seconds, or none.")
	add(task.SettingShare, shareHelp, "30%, 12.5%, or none.")
}

// change changes settings of a container, and says what that did.
func (c *cli) change(ctx context.Context, base string, acts *standingSource, container string, change task.Change) (string, error) {
	exporter, err := c.source(base)
	if err != nil {
		return "", err
	}
	before, err := exporter.Snapshot(ctx)
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	changed, err := exporter.Changed(ctx, container, change)
	if err != nil {
		return "", refusedChange(err)
	}
	was, _ := before.FindContainer(changed.ID)
	var said string
	if change.Deadline != nil {
		said += deadlineChanged(before, was.Spec.Deadline, changed, time.Now())
	}
	if change.Share != nil {
		is, _ := acts.ask(ctx) // where nobody answers, that is said
		said += shareChanged(was.Spec.Share, changed, is)
	}
	return said, nil
}

// refusedChange says why the exporter did not change a setting, and what to do.
func refusedChange(err error) error {
	var refused *source.RefusedError
	switch {
	case !errors.As(err, &refused):
		return err
	case refused.Reason == "":
		return denied(refused.Code, fmt.Errorf("the exporter answers %s", refused.Status))
	default:
		return denied(refused.Code, fmt.Errorf("%s: %s", refused.Reason, refused.Hint))
	}
}

// deadlineChanged says what a changed deadline means for the container's tasks. The snapshot
// is the one before the change.
func deadlineChanged(before *task.Snapshot, was task.Seconds, c task.Container, now time.Time) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: deadline %s, was %s.", c.Name, task.DeadlineWords(c.Spec.Deadline), task.DeadlineWords(was))
	n, least := 0, task.Seconds(0)
	for _, t := range before.Tasks {
		if t.ContainerID != c.ID {
			continue
		}
		left := c.Spec.Deadline - task.SecondsOf(now.Sub(t.Start.Time))
		if n == 0 || left < least {
			least = left
		}
		n++
	}
	switch {
	case n == 0:
		b.WriteString(" It has no GPU task now; the next ones have it.\n")
	case c.Spec.Deadline <= 0:
		fmt.Fprintf(&b, " That holds for %s too.\n", tasksOf(n))
	case least < 0:
		fmt.Fprintf(&b, " That holds for %s too, and is over: float %s.\n", tasksOf(n), view.Float(least))
	default:
		fmt.Fprintf(&b, " That holds for %s too: float %s.\n", tasksOf(n), view.Float(least))
	}
	if !c.Spec.Managed {
		fmt.Fprintf(&b, "Nobody acts on it: %s has none of Laxity's labels, so Laxity only shows and counts how it fares.\n"+
			"To have its deadline kept, start it with --label laxity.deadline=%s.\n", c.Name, task.DeadlineWords(max(c.Spec.Deadline, was)))
	}
	return b.String()
}

func tasksOf(n int) string {
	if n == 1 {
		return "its unfinished task"
	}
	return fmt.Sprintf("its %d unfinished tasks", n)
}

// shareChanged says what a changed share means; is comes from the actuator, zero where none answers.
func shareChanged(was float64, c task.Container, is state.State) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: share %s, was %s.", c.Name, task.ShareWords(c.Spec.Share), task.ShareWords(was))
	switch {
	case !c.Spec.Managed:
		fmt.Fprintf(&b, "\nNobody keeps it: %s has none of Laxity's labels, so Laxity does not act on it.\n"+
			"To have its share kept, start it with --label laxity.share=%s.\n", c.Name, task.ShareWords(max(c.Spec.Share, was)))
	case c.Spec.Share == 0:
		b.WriteString(" It has no promise any more: it shares the GPU as the policy says.\n")
	case is.Time.IsZero():
		b.WriteString(" No actuator answers (--actuator.url), so nobody may keep it.\n")
	case is.Hold != config.HoldChannels:
		fmt.Fprintf(&b, " It is not kept here: GPU time is not divided by slices, because %s. laxity check says what to do.\n",
			cmp.Or(is.NoChannels, "--hold=pause"))
	default:
		fmt.Fprintf(&b, " It counts from now on, while others want the GPU; laxity why %s says whether it can be kept.\n", c.Name)
	}
	return b.String()
}
