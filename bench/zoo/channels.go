package zoo

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/laxity/laxity/actuator/enforce"
	"github.com/laxity/laxity/actuator/enforce/channels"
	"github.com/laxity/laxity/actuator/journal"
	"github.com/laxity/laxity/bench"
)

// What is off the GPU, and whose time slice is not its own, the simulated GPU says. No
// driver does: on a real one there is the record alone.

const (
	offPrefix   = "off the GPU: "
	slicePrefix = "a slice that is not its own: "
)

func isOff(what string) bool { return strings.HasPrefix(what, offPrefix) }

// lookAtChannels notes whether a process is off its GPU, or has a slice that nobody may
// give it.
func (w *watcher) lookAtChannels(s *specimen, pid int, start string, now time.Time, gap bool) {
	gpu := s.machine.gpu.Sim
	if gpu == nil {
		return
	}
	if gpu.Off(pid) {
		w.note(s, fmt.Sprintf("%s%d %s", offPrefix, pid, start), now, gap)
	}
	if d := gpu.Sliced(pid); d != 0 && s.untouchable() {
		w.note(s, fmt.Sprintf("%s%d %s", slicePrefix, pid, start), now, gap)
	}
}

// changed lists the processes of which something is not their own on a simulated GPU.
func changed(all []*specimen) (found []string) {
	for _, s := range all {
		if s == nil || s.process() == 0 || s.machine.gpu.Sim == nil {
			continue
		}
		group, err := groupOf(s)
		if err != nil {
			continue // it has ended
		}
		for _, pid := range processesOf(group) {
			if gpu := s.machine.gpu.Sim; gpu.Off(pid) {
				found = append(found, fmt.Sprintf("container %d (%s), %s%d", s.number, s.kind.name, offPrefix, pid))
			} else if d := gpu.Sliced(pid); d != 0 {
				found = append(found, fmt.Sprintf("container %d (%s), %s%d has %v", s.number, s.kind.name, slicePrefix, pid, d))
			}
		}
	}
	return found
}

// worthIt is how long an end waits for a moment in which there is something to put back.
const worthIt = 2 * time.Second

// awaitChanged waits for such a moment.
func awaitChanged(ctx context.Context, all []*specimen) {
	for began := time.Now(); len(changed(all)) == 0 && time.Since(began) < worthIt; {
		if bench.Pass(ctx, tick) != nil {
			return
		}
	}
}

// channelRecords is the folder in which the actuator has what it changed of channels.
func (l *laxity) channelRecords() string {
	return channels.Folder(enforce.RunDir, l.state)
}

// recorded lists what is on record there.
func (l *laxity) recorded() (all []string) {
	found, _ := filepath.Glob(filepath.Join(l.channelRecords(), "*.json"))
	for _, f := range found {
		text, _ := os.ReadFile(f) // gone: it has been undone
		if len(text) > 0 {
			all = append(all, filepath.Base(f)+" "+strings.TrimSpace(string(text)))
		}
	}
	return all
}

// undoneWithin is how long the guardian has to undo what a killed actuator left.
const undoneWithin = time.Second + slack

// undone reports what is still changed when it must not be any more: after the actuator's
// end by itself, and a while after its death where a guardian watches.
func (l *laxity) undone(ctx context.Context, d death, all []*specimen) {
	within := time.Duration(0)
	switch {
	case d.who == laxityEnds:
	case d.who == actuatorDies && journal.Taken(journal.GuardianLock(l.stateDir())):
		within = undoneWithin
	default:
		return
	}
	for began := time.Now(); ; {
		left := changed(all)
		if len(left) == 0 {
			return
		}
		if time.Since(began) > within {
			for _, what := range left {
				l.fail("%v after %s: %s", within, d.who, what)
			}
			return
		}
		if bench.Pass(ctx, tick) != nil {
			return // the round is over
		}
	}
}
