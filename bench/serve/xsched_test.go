package serve

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"github.com/laxity/laxity/bench"
)

// asServer makes this program a stand-in for xserver: it listens, as that does.
const asServer = "LAXITY_TEST_XSERVER"

func TestMain(m *testing.M) {
	if os.Getenv(asServer) == "" || len(os.Args) != 3 || os.Args[1] != "HPF" {
		os.Exit(m.Run())
	}
	l, err := net.Listen("tcp", "127.0.0.1:"+os.Args[2])
	if err != nil {
		os.Exit(1)
	}
	for {
		c, err := l.Accept()
		if err != nil {
			os.Exit(1)
		}
		c.Close()
	}
}

func TestTheServerOfXSchedIsStartedAndEnded(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	x := xsched{folder: t.TempDir()}
	bin := filepath.Join(x.folder, "bin")
	if err := errors.Join(os.Mkdir(bin, 0o755), os.Symlink(self, filepath.Join(bin, "xserver"))); err != nil {
		t.Fatal(err)
	}
	t.Setenv(asServer, "1")
	server, err := x.start(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	pid := server.PID
	if err := errors.Join(server.stop(), server.stop()); err != nil {
		t.Error(err)
	}
	if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("xserver lives on: %v", err)
	}
	var none *xserver
	if err := none.stop(); err != nil {
		t.Error(err)
	}
}

func TestXSchedPutsServersBeforeTrainers(t *testing.T) {
	x, err := parseXSched(bench.Env{Args: map[string]string{"xsched": "/x", "xsched-build": "abc", "xsched-inflight": "1"}})
	if err != nil {
		t.Fatal(err)
	}
	s := x.spec("/driver")
	for _, want := range []string{"LD_LIBRARY_PATH=/x/lib:/driver", "XSCHED_CUDA_LIB=/driver/libcuda.so.1", "XSCHED_SCHEDULER=GLB", "XSCHED_AUTO_XQUEUE_LEVEL=1"} {
		if !slices.Contains(s.Env, want) {
			t.Errorf("%q lacks %s", s.Env, want)
		}
	}
	if s.IPC != "host" || s.PID != "host" {
		t.Errorf("IPC %q, PID %q: the server does not find the programs", s.IPC, s.PID)
	}
	if !slices.Contains(x.priority(decode), "XSCHED_AUTO_XQUEUE_PRIORITY=1") || !slices.Contains(x.priority(trainer), "XSCHED_AUTO_XQUEUE_PRIORITY=0") {
		t.Errorf("%q, %q", x.priority(decode), x.priority(trainer))
	}
	if got := x.priority(trainer); !slices.Contains(got, "XSCHED_AUTO_XQUEUE_THRESHOLD=1") || !slices.Contains(got, "XSCHED_AUTO_XQUEUE_BATCH_SIZE=1") {
		t.Errorf("a trainer's commands: %q", got)
	}
}

func TestXSchedNeedsItsFolderAndCommit(t *testing.T) {
	for _, bad := range []map[string]string{{"ways": "default,xsched"}, {"xsched": "/x"}, {"xsched": "/x", "xsched-build": "a", "xsched-level": "0"}} {
		if _, err := parse(bench.Env{Args: bad}, scenes); err == nil {
			t.Errorf("%v was taken", bad)
		}
	}
	s, err := parse(bench.Env{Args: map[string]string{"xsched": "/x", "xsched-build": "abc"}}, scenes)
	if err != nil || !slices.Contains(s.ways, withXSched) || slices.Contains(scenes[0].ways, withXSched) {
		t.Errorf("%q, %v", s.ways, err)
	}
}
