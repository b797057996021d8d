package zoo

import (
	"errors"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/laxity/laxity/bench"
	"github.com/laxity/laxity/exporter/device/sim/simtest"
	"github.com/laxity/laxity/internal/cc"
	"github.com/laxity/laxity/internal/cudaprobe"
	"github.com/laxity/laxity/internal/daemon/containerd/containerdtest"
	"github.com/laxity/laxity/internal/needtest"
)

// visitors is how many containers the test plays with, firstSeed its first round's.
const (
	visitors  = 60
	firstSeed = 1
)

// Laxity, as shipped, beside programs of all kinds on the simulated GPU: everybody ends
// as without it, and nobody stands without a reason.
func TestNobodyIsHarmed(t *testing.T) {
	if testing.Short() {
		t.Skip("plays for minutes")
	}
	simtest.Docker(t)
	harmsNobody(t, ownDocker, visitors)
}

// The same in pods of containerd; fewer of them, since what differs is how they are watched and paused.
func TestNobodyIsHarmedInPods(t *testing.T) {
	if testing.Short() {
		t.Skip("plays for a minute")
	}
	containerdtest.New(t) // or skips
	harmsNobody(t, ownPods, visitors/4)
}

// harmsNobody plays rounds with so many containers at least.
func harmsNobody(t *testing.T, engine string, visitors int) {
	t.Helper()
	if err := cudaprobe.Check(cudaprobe.Options{}); err != nil {
		needtest.BPF.Skip(t, err)
	}
	began, bin := time.Now(), t.TempDir()
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", bin+"/", "../../cmd/laxity", "../../cmd/laxity-exporter", "../../cmd/laxity-actuator").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	env := bench.Env{Device: "sim", Log: t.Logf, Args: map[string]string{"engine": engine, "laxity": filepath.Join(bin, "laxity")}}
	m, err := open(t.Context(), env)
	if errors.Is(err, cc.ErrNoCompiler) {
		needtest.Compiler.Skip(t, err)
	}
	if err != nil {
		t.Fatal(err)
	}
	m.bound = 3 * time.Minute
	t.Cleanup(func() {
		if err := m.close(); err != nil {
			t.Error(err)
		}
	})
	from, err := m.pool(env, plan{})
	if err != nil {
		t.Fatal(err)
	}
	played := 0
	for seed := uint64(firstSeed); played < visitors; seed++ {
		row, err := m.both(t.Context(), from.draw(seed), false, false)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		played += len(row["kinds"].([]string))
		t.Logf("%3.0fs: %s", time.Since(began).Seconds(), progress(int(seed), row))
		if row.Num("stuck")+row.Num("failed")+row.Num("wrong")+row.Num("stray") > 0 {
			t.Errorf("seed %d: somebody was harmed; laxity-bench zoo --device=sim --engine=%s --rounds=1 --seed=%d repeats the round", seed, engine, seed)
		}
	}
}
