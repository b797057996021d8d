package journal_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/laxity/laxity/actuator/journal"
)

// Whatever stands in a record, its container is listed by the name of the file, once.
func FuzzRecord(f *testing.F) {
	for _, seed := range []string{"", "{", "null", `{"container_id":"a"}`, `{"container_id":"b","since":"2026-01-02T03:04:05Z"}`,
		`{"container_id":"a","expires":"9999-12-31T23:59:59Z","tasks":["x"]}`, `{"since":1}`, "\x00\xff"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		dir := t.TempDir()
		j, err := journal.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "holds", "a.json"), data, 0o600); err != nil {
			t.Fatal(err)
		}
		holds, err := j.List()
		if err != nil || len(holds) != 1 || holds[0].ContainerID != "a" {
			t.Errorf("%+v %v", holds, err)
		}
		if err := j.Remove("a"); err != nil {
			t.Error(err)
		}
	})
}
