package swapping_test

import (
	"os"
	"testing"

	"github.com/laxity/laxity/actuator/journal/journaltest"
	"github.com/laxity/laxity/actuator/swapping"
	"github.com/laxity/laxity/internal/engine"
)

// How the helper is started goes on record; where it is, a full disk keeps nobody from swapping in.
func TestHelperOnRecord(t *testing.T) {
	dir := t.TempDir()
	fill := journaltest.SmallDisk(t, dir)
	o := swapping.Options{StateDir: dir, Engine: engine.Choice{Kind: engine.Docker, DockerHost: "unix:///none.sock"}, Helper: []string{"helper", "a"},
		ContainerOf: func(int) (string, bool, error) { return "", false, nil }}
	open := func(o swapping.Options) error {
		t.Helper()
		s, err := swapping.Open(o)
		if err != nil {
			return err
		}
		return s.Close()
	}
	if err := open(o); err != nil {
		t.Fatal(err)
	}
	onRecord := func(want string) {
		t.Helper()
		if text, err := os.ReadFile(swapping.HelperFile(dir)); err != nil || string(text) != want {
			t.Errorf("on record: %q, %v; want %q", text, err, want)
		}
	}
	onRecord(`["helper","a"]` + "\n")
	free := fill()
	if err := open(o); err != nil {
		t.Error("the same helper:", err)
	}
	other := o
	other.Helper = []string{"helper", "b"}
	if err := open(other); err == nil {
		t.Error("opened, though what it swaps out nobody could bring back")
	}
	undo := other
	undo.Undo = true
	if err := open(undo); err != nil {
		t.Error("to swap in:", err)
	}
	free()
	onRecord(`["helper","a"]` + "\n")
	if err := open(other); err != nil {
		t.Error(err)
	}
	onRecord(`["helper","b"]` + "\n")
}
