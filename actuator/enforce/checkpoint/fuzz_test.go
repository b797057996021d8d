package checkpoint_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/laxity/laxity/actuator/enforce/checkpoint"
	"github.com/laxity/laxity/actuator/enforce/checkpoint/checkpointtest"
)

// Whatever stands in a record, its container is listed by the name of the file, once, beside
// the others. One that is damaged brings its container back by its name; none touches a
// process of another one, or a file that is not its own.
func FuzzRecord(f *testing.F) {
	for _, seed := range []string{"", "{", "null", "[]", "\x00\xff",
		`{"container_id":"c"}`, `{"container_id":"o","stage":"suspended"}`,
		`{"container_id":"c","stage":"suspended","processes":[{"pid":101,"start":101,"bytes":{"GPU-0":104857600}}]}`,
		`{"container_id":"c","stage":"suspended","processes":[{"pid":102,"start":0}]}`,
		`{"container_id":"c","stage":"suspended","processes":[{"pid":-1,"start":1},{"pid":101,"start":101,"bytes":{"GPU-0":18446744073709551615}}]}`,
		`{"container_id":"c","stage":"resuming","doubtful":true,"notice":"theirs","processes":[{"pid":101,"start":101}]}`,
		`{"container_id":"c","stage":"suspending","since":"9999-12-31T23:59:59Z","processes":null}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		m, dir := checkpointtest.NewMachine(1000*mib), t.TempDir()
		t.Chdir(dir) // a notice may be a relative path
		m.Start("c", 100*mib)
		other := m.Start("other", 100*mib)
		o := m.Options(t, dir)
		o.NoticeDir = filepath.Join(dir, "notices")
		open := func() *checkpoint.Swapper {
			s, err := checkpoint.New(o)
			check(t, err, nil)
			return s
		}
		_, err := open().Suspend(t.Context(), "c", "c", "test")
		check(t, err, nil)
		m.SetState(other, checkpoint.Locked) // by somebody else
		m.SetStat(other, func(s *checkpoint.Stat) { s.Start = 1<<62 + 12345 })
		for path, text := range map[string][]byte{
			filepath.Join(checkpoint.Folder(dir), "c.json"): data, filepath.Join(checkpoint.Folder(dir), "d.json"): nil, "theirs": nil,
		} {
			check(t, os.WriteFile(path, text, 0o600), nil)
		}
		s := open()
		all, err := s.Swapped()
		check(t, err, nil)
		ids, damaged := map[string]bool{}, false
		for _, one := range all {
			ids[one.ContainerID] = true
			damaged = damaged || one.ContainerID == "c" && strings.HasPrefix(one.Error, "record cannot be read")
		}
		if len(all) != 2 || !ids["c"] || !ids["d"] {
			t.Fatalf("listed: %+v", all)
		}
		_, err = s.Resume(t.Context(), "c", nil)
		if damaged {
			check(t, err, nil)
			runs(t, m, "c")
			if _, err := os.Stat(filepath.Join(o.NoticeDir, "c.json")); !errors.Is(err, fs.ErrNotExist) {
				t.Error("the exporter is still told that it is swapped out")
			}
		}
		if got := m.StateOf(other); got != checkpoint.Locked {
			t.Errorf("another container's process is %s", got)
		}
		if _, err := os.Stat("theirs"); err != nil {
			t.Error("a file of others was removed")
		}
		if files, err := filepath.Glob(filepath.Join(dir, "*")); err != nil || len(files) != 3 {
			t.Errorf("files %v", files)
		}
	})
}
