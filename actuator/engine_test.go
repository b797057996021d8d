package actuator_test

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/laxity/laxity/actuator"
	"github.com/laxity/laxity/actuator/enforce"
	"github.com/laxity/laxity/actuator/journal"
	"github.com/laxity/laxity/actuator/record"
	"github.com/laxity/laxity/actuator/undo"
	"github.com/laxity/laxity/internal/engine"
)

// Who undoes what an actuator left finds its engine on record; one that only watches records none.
func TestRecordsItsEngine(t *testing.T) {
	choice := engine.Choice{Kind: engine.Containerd, Address: "/x.sock", Namespaces: []string{"a"}}
	for _, dryRun := range []bool{false, true} {
		b := newBench(t, func(o *actuator.Options) { o.Engine, o.DryRun = choice, dryRun })
		if err := b.stop(); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(filepath.Join(b.dir, "engine"))
		if want := `{"kind":"containerd","containerd_address":"/x.sock","containerd_namespaces":["a"]}` + "\n"; !dryRun && string(text) != want {
			t.Errorf("%q, %v; want %q", text, err, want)
		}
		if dryRun && !os.IsNotExist(err) {
			t.Errorf("a dry run: %q, %v", text, err)
		}
	}
}

// At boot another engine's socket may appear while the actuator starts: what is on record is what it
// uses.
func TestDecidesOnItsEngineOnce(t *testing.T) {
	t.Setenv("DOCKER_HOST", "")
	t.Setenv("CONTAINERD_ADDRESS", "")
	this := engine.This
	defer func() { engine.This = this }()
	engine.This.Exists = func(path string) bool { return path == engine.Sockets[0] }
	b := newBench(t, func(o *actuator.Options) {
		open := o.Mechanisms.NewEnforcer
		o.Mechanisms.NewEnforcer = func(j *journal.Journal) (enforce.Enforcer, error) {
			engine.This.Exists = func(string) bool { return true }
			return open(j)
		}
	})
	if err := b.stop(); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(b.dir, "engine"))
	if err != nil || !strings.Contains(string(text), engine.Sockets[0]) {
		t.Errorf("on record %q, %v", text, err)
	}
}

// What a former actuator left paused by another engine is released by that one, which is on record
// until then.
func TestAsksTheFormerEngineFirst(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "docker.sock")
	former, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer former.Close()
	asked := make(chan string, 1000)
	newBench(t, func(o *actuator.Options) {
		o.Engine = engine.Choice{Kind: engine.Containerd, Address: "/x.sock"}
		j, err := journal.Open(o.StateDir)
		if err == nil {
			err = errors.Join(j.Put(record.Hold{ContainerID: "a"}), undo.RecordEngine(o.StateDir, engine.Choice{Kind: engine.Docker, DockerHost: "unix://" + socket}))
		}
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			for {
				c, err := former.Accept()
				if err != nil {
					return
				}
				recorded, _ := os.ReadFile(undo.EngineFile(o.StateDir))
				asked <- string(recorded)
				_ = c.Close()
			}
		}()
	})
	select {
	case recorded := <-asked:
		if !strings.Contains(recorded, socket) {
			t.Errorf("asked when on record was %s", recorded)
		}
	case <-time.After(20 * time.Second):
		t.Error("the former engine was not asked")
	}
}
