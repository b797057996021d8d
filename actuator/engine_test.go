package actuator_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/laxity/laxity/actuator"
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
