package holds

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// Whatever stands in a record, the others count, and none names what is no process.
func FuzzRecord(f *testing.F) {
	for _, seed := range []string{"", "{", "null", "[]", `{"pid":2,"start":3,"groups":[{"off":true},{}]}`, `{"pid":2,"groups":[null]}`,
		`{"pid":-2,"start":3,"groups":[{"off":true}]}`, `{"groups":[{"off":true}]}`,
		`{"pid":2,"start":18446744073709551615,"groups":[{"off":true}]}`, `{"pid":2,"start":1e99,"groups":[{"off":1}]}`, "\x00\xff"} {
		f.Add([]byte(seed))
	}
	dir := f.TempDir()
	other, path := filepath.Join(dir, "1-1.json"), filepath.Join(dir, "2-3.json")
	if err := os.WriteFile(other, []byte(`{"pid":1,"start":1,"groups":[{"off":true}]}`), 0o600); err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		var reported map[int]time.Duration
		warned := 0
		w := follower{off: map[string]process{}, bad: map[string]bool{}, report: func(off map[int]time.Duration, _ time.Time) { reported = off }, warn: func(error) { warned++ }}
		for range 2 { // an event, and another one
			w.inspect(path)
			w.inspect(other)
		}
		w.settle(time.Time{})
		if reported[1] < tick {
			t.Errorf("reported %v", reported)
		}
		for pid, started := range reported {
			if pid <= 0 || started < 0 {
				t.Errorf("process %d, started %v after boot", pid, started)
			}
		}
		if pids := slices.Collect(maps.Keys(reported)); len(pids) > 2 || warned > 1 {
			t.Errorf("reported %v, warned %d times", pids, warned)
		}
	})
}
