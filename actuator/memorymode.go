package actuator

import (
	"fmt"
	"time"

	"github.com/laxity/laxity/actuator/allocator/ledger"
	"github.com/laxity/laxity/exporter/task"
)

// MemoryMode says whether a part that acts on GPU memory is used.
type MemoryMode string

// The modes.
const (
	MemoryAuto MemoryMode = "auto" // where this machine can
	MemoryOff  MemoryMode = "off"
)

// MemoryModes lists the values of MemoryMode.
var MemoryModes = []string{string(MemoryAuto), string(MemoryOff)}

func (o *Options) checkMemory() error {
	for name, m := range map[string]*MemoryMode{"memory-guard": &o.MemoryGuard, "swap": &o.Swap} {
		switch *m {
		case "":
			*m = MemoryAuto
		case MemoryAuto, MemoryOff:
		default:
			return fmt.Errorf("%s is %q; write one of %v", name, *m, MemoryModes)
		}
	}
	return nil
}

// openMemory makes the parts that act on GPU memory. Without them nothing is
// guarded or swapped, and nothing is lost but that.
func (a *Actuator) openMemory() error {
	a.ledger = ledger.New(ledger.Options{Now: a.o.Now, Alive: a.o.ThreadAlive})
	if a.o.DryRun {
		return nil
	}
	if a.o.MemoryGuard != MemoryOff && a.o.NewMemoryGuard == nil && a.o.OpenMemoryLedger != nil && a.o.ContainerOf != nil {
		a.memoryGuard = newGuardService(a.o, a.ledger)
	}
	if a.o.MemoryGuard != MemoryOff && a.o.NewMemoryGuard != nil {
		g, err := a.o.NewMemoryGuard(a.ledger)
		if err != nil {
			return fmt.Errorf("memory guard (--memory-guard=off works without): %w", err)
		}
		a.memoryGuard = g
	}
	if a.o.Swap != MemoryOff && a.o.NewSwapper != nil {
		s, err := a.o.NewSwapper()
		if err != nil {
			return fmt.Errorf("swapping (--swap=off works without): %w", err)
		}
		a.swapper = s
	}
	return nil
}

func (a *Actuator) newMemoryKeeper() *memoryKeeper {
	m := &memoryKeeper{ledger: a.ledger, guard: a.memoryGuard, since: map[string]time.Time{}, denied: map[string]map[string]time.Time{}}
	if a.swapper != nil {
		m.swaps = newSwapKeeper(a.swapper)
	}
	return m
}

// memoryAsked says why it is asked about a container's allocations of GPU memory,
// which may then wait or be refused; empty: they are let alone, and so is the
// container when memory is short for others. Its labels decide, and --memory-share.
func (l *loop) memoryAsked(c task.Container) string {
	share := l.Config().MemoryShare
	switch {
	case l.mem.guard == nil || !l.managed(c) || c.Spec.NeverPause:
		return ""
	case c.Spec.GPUMemory > 0:
		return "it has a limit (" + task.LabelGPUMemory + ")"
	case share.Divides():
		return fmt.Sprintf("--memory-share=%s divides the card among all containers with a laxity.* label", share)
	default:
		return ""
	}
}
