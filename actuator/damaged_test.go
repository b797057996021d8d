package actuator_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/laxity/laxity/actuator/webhook"
)

// Whatever lies in the state folder keeps no actuator from starting and acting; what could
// not be read is told.
func TestDamagedStateKeepsNobodyFromStarting(t *testing.T) {
	garbage := func(path string) error { return os.WriteFile(path, bytes.Repeat([]byte("x"), 9000), 0o600) }
	cut := func(path string) error {
		s, err := os.Stat(path)
		if err != nil {
			return err
		}
		return os.Truncate(path, s.Size()/2+1)
	}
	folder := func(path string) error {
		return errors.Join(os.RemoveAll(path), os.MkdirAll(filepath.Join(path, "in"), 0o700))
	}
	file := func(path string) error { return errors.Join(os.RemoveAll(path), os.WriteFile(path, nil, 0o600)) }
	for _, tt := range []struct {
		file   string
		damage func(path string) error
		told   bool
	}{
		{"inbox.db", garbage, true}, {"inbox.db", cut, true}, {"inbox.db", folder, true},
		{"leases.json", garbage, true}, {"leases.json", cut, true}, {"leases.json", folder, true},
		{"decisions.jsonl", garbage, false}, {"decisions.jsonl", folder, true},
		{"history.json", garbage, true}, {"history.json", folder, true},
		{"holds", file, true}, {"strays", folder, false},
	} {
		b := newBench(t, nil)
		b.run("a", "b")
		b.send(contention(webhook.Firing))
		b.awaitPaused("b", "a", "b")
		if err := b.stop(); err != nil {
			t.Fatal(err)
		}
		if err := tt.damage(filepath.Join(b.dir, tt.file)); err != nil {
			t.Fatal(err)
		}
		b.restart(nil)
		b.send(contention(webhook.Firing))
		b.awaitPaused("b", "a", "b")
		aside := func(name string) bool { return strings.HasPrefix(name, tt.file+".damaged-") }
		if tt.told && !slices.ContainsFunc(b.State().PutAside, aside) {
			t.Errorf("%s: told %v", tt.file, b.State().PutAside)
		}
		if _, metrics := b.get("/metrics"); tt.told && !strings.Contains(metrics, "laxity_actuator_files_put_aside 1") {
			t.Errorf("%s: no metric", tt.file)
		}
		if err := b.stop(); err != nil {
			t.Errorf("%s: %v", tt.file, err)
		}
	}
}
