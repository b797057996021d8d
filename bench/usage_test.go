package bench_test

import (
	"os"
	"testing"

	"github.com/laxity/laxity/bench"
)

func TestReadUsageOfThisProcess(t *testing.T) {
	u, err := bench.ReadUsage(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if u.Parent != os.Getppid() || u.Threads < 1 || u.RSSAnon <= 0 || u.RSS < u.RSSAnon {
		t.Errorf("%+v, want threads, the parent %d, and more memory than is private", u, os.Getppid())
	}
}

func TestSeries(t *testing.T) {
	page := "# HELP a x\n# TYPE a counter\na 1\n\na_bucket{le=\"1\"} 2\na_bucket{le=\"+Inf\"} 3\n# EOF\n"
	if n := bench.Series([]byte(page)); n != 3 {
		t.Errorf("%d series, want 3", n)
	}
}
