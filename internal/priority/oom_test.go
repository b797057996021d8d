package priority

import (
	"os"
	"path/filepath"
	"testing"
)

func TestOutlive(t *testing.T) {
	path := filepath.Join(t.TempDir(), "oom_score_adj")
	for is, want := range map[string]string{"0\n": "-900", "200\n": "-900", "-950\n": "-950\n", "-1000\n": "-1000\n"} {
		if err := os.WriteFile(path, []byte(is), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := outlive(path, -900); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(path); err != nil || string(got) != want {
			t.Errorf("%q became %q (%v), want %q", is, got, err, want)
		}
	}
	if err := outlive(path+".none", -900); err == nil {
		t.Error("no error without the file")
	}
}
