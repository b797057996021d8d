package swaps_test

import (
	"maps"
	"os"
	"path/filepath"
	"testing"

	"github.com/laxity/laxity/exporter/swaps"
)

func TestSwapped(t *testing.T) {
	dir := t.TempDir()
	if off, err := swaps.Dir(filepath.Join(dir, "absent")).Swapped(); len(off) != 0 || err != nil {
		t.Errorf("%v %v", off, err)
	}
	for name, text := range map[string]string{
		"a.json":     `{"container_id":"a","processes":[{"pid":1,"start_ticks":7},{"pid":2,"start_ticks":8}]}`,
		"b.json":     `{"container_id":"b","processes":[{"pid":3}]}`,
		"c.json.tmp": `{"container_id":"c","processes":[{"pid":4}]}`,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want := map[int]string{1: "a", 2: "a", 3: "b"}
	if off, err := swaps.Dir(dir).Swapped(); !maps.Equal(off, want) || err != nil {
		t.Errorf("%v %v", off, err)
	}
	if err := os.WriteFile(filepath.Join(dir, "d.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if off, err := swaps.Dir(dir).Swapped(); !maps.Equal(off, want) || err == nil {
		t.Errorf("%v %v", off, err)
	}
}
