package swaps_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/laxity/laxity/exporter/swaps"
)

// Whatever stands in a notice, the others count, and none names what is no process.
func FuzzNotice(f *testing.F) {
	for _, seed := range []string{"", "{", "null", "[]", `{"container_id":"b","processes":[{"pid":2,"start_ticks":8}]}`,
		`{"container_id":"b","processes":[{"pid":-1}]}`, `{"container_id":"b","processes":[{}]}`,
		`{"processes":[{"pid":3}]}`, `{"container_id":"b","processes":[null,{"pid":99999999999999999999}]}`, "\x00\xff"} {
		f.Add([]byte(seed))
	}
	dir := f.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "z.json"), []byte(`{"container_id":"z","processes":[{"pid":1}]}`), 0o600); err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if err := os.WriteFile(filepath.Join(dir, "a.json"), data, 0o600); err != nil {
			t.Fatal(err)
		}
		off, err := swaps.Dir(dir).Swapped()
		if off[1] != "z" {
			t.Errorf("%v, %v", off, err)
		}
		for pid, id := range off {
			if pid <= 0 || id == "" {
				t.Errorf("process %d of %q, %v", pid, id, err)
			}
		}
	})
}
