package priority_test

import (
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/laxity/laxity/internal/priority"
)

// A program of its own, because what it sets holds for the whole process.
func TestFewCores(t *testing.T) {
	if os.Getenv("LAXITY_TEST_CORES") != "" {
		runtime.GOMAXPROCS(64) // as on a large machine
		if n, err := strconv.Atoi(os.Getenv("GOMAXPROCS")); err == nil {
			runtime.GOMAXPROCS(n)
		}
		priority.FewCores()
		_, _ = os.Stdout.WriteString("cores=" + strconv.Itoa(runtime.GOMAXPROCS(0)) + "\n")
		return
	}
	for _, c := range []struct{ set, want string }{{"", "cores=3"}, {"7", "cores=7"}} {
		cmd := exec.Command(os.Args[0], "-test.run=^TestFewCores$")
		cmd.Env = append(os.Environ(), "LAXITY_TEST_CORES=1", "GOMAXPROCS="+c.set)
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(string(out), c.want+"\n") {
			t.Errorf("GOMAXPROCS=%q: %s, %v; want %s", c.set, out, err, c.want)
		}
	}
}
