package allinone

import (
	"testing"

	"github.com/laxity/laxity/exporter/task"
)

func TestIsCalm(t *testing.T) {
	process := func(gpus ...string) task.Process { return task.Process{GPUs: gpus} }
	container := func(processes ...task.Process) task.Container { return task.Container{Processes: processes} }
	half := []task.GPU{{UUID: "a", MemoryTotal: 100, MemoryUsed: 50}, {UUID: "b", MemoryTotal: 100, MemoryUsed: 50}}
	for name, c := range map[string]struct {
		gpus       []task.GPU
		containers []task.Container
		calm       bool
	}{
		"nobody":                            {half, nil, true},
		"one alone":                         {half, []task.Container{container(process("a")), container()}, true},
		"one on each of two GPUs":           {half, []task.Container{container(process("a")), container(process("b"))}, true},
		"two containers on a GPU":           {half, []task.Container{container(process("a")), container(process("a"))}, false},
		"two processes of a container":      {half, []task.Container{container(process("a"), process("a"))}, false},
		"one on both beside one":            {half, []task.Container{container(process("a", "b")), container(process("b"))}, false},
		"a second one, it is unknown where": {half, []task.Container{container(process("a")), container(process())}, false},
		"one, it is unknown where":          {half, []task.Container{container(process())}, true},
		"nearly full":                       {[]task.GPU{{MemoryTotal: 100, MemoryUsed: 85}}, nil, false},
		"a GPU that does not answer":        {[]task.GPU{{}}, nil, false},
	} {
		if got := isCalm(&task.Snapshot{GPUs: c.gpus, Containers: c.containers}); got != c.calm {
			t.Errorf("%s: calm is %v", name, got)
		}
	}
}

// The engine is woken when calm comes or goes, once, and not by each snapshot.
func TestCalmWakes(t *testing.T) {
	alone := &task.Snapshot{Containers: []task.Container{{Processes: []task.Process{{GPUs: []string{"a"}}}}}}
	two := &task.Snapshot{Containers: append(alone.Containers, alone.Containers...)}
	c, snapshots := newCalm(), make(chan *task.Snapshot)
	ended := make(chan struct{})
	go func() { defer close(ended); c.follow(snapshots) }()
	for _, s := range []*task.Snapshot{alone, alone, two, two, alone} {
		before := c.now.Load()
		snapshots <- s
		if now := isCalm(s); now != before {
			<-c.wake
			if c.now.Load() != now {
				t.Errorf("woken, but calm is %v", !now)
			}
		}
	}
	close(snapshots)
	<-ended
	select {
	case <-c.wake:
		t.Error("woken though nothing changed")
	default:
	}
}
