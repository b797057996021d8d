package guard

import (
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/laxity/laxity/bench"
)

// A stub in its place is loaded into the program and its children, and counts them beside the limit that it is told.
func TestHAMiIsPreloadedWithItsLimit(t *testing.T) {
	dir := t.TempDir()
	library, source := filepath.Join(dir, "libvgpu.so"), filepath.Join(dir, "stub.c")
	const stub = `#include <stdio.h>
#include <stdlib.h>
__attribute__((constructor)) static void begin(void) {
	FILE *f = fopen(getenv("STUB"), "a");
	if (f) { fprintf(f, "%s %s\n", getenv("CUDA_DEVICE_MEMORY_LIMIT"), getenv("CUDA_VISIBLE_DEVICES")); fclose(f); }
}`
	if err := os.WriteFile(source, []byte(stub), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), "cc", "-shared", "-fPIC", "-o", library, source).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	h, err := parseHAMi(bench.Env{Args: map[string]string{hamiCore: library, hamiCore + "-build": "abc, unchanged"}})
	if err != nil {
		t.Fatal(err)
	}
	said := filepath.Join(dir, "said")
	cmd := exec.CommandContext(t.Context(), "/bin/sh", "-c", "/bin/true; exec /bin/true")
	cmd.Env = append(os.Environ(), "CUDA_VISIBLE_DEVICES=GPU-1", "STUB="+said)
	cmd.Env = append(cmd.Env, h.env(3*limit)...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	got, err := os.ReadFile(said)
	if want := strings.Repeat("3221225472 0\n", 3); err != nil || string(got) != want {
		t.Errorf("%q, %v, want %q", got, err, want)
	}
	mounts, err := h.mounts(filepath.Join(dir, "tmp"))
	if err != nil || len(mounts) != 1 || mounts[0].Target != "/tmp" || mounts[0].ReadOnly {
		t.Errorf("%+v, %v", mounts, err)
	}
	if info, err := os.Stat(filepath.Join(dir, "tmp", "vgpulock")); err != nil || info.Mode().Perm() != 0o777 {
		t.Errorf("its lock's folder: %v, %v", info, err)
	}
}

func TestHAMiNeedsItsLibraryAndCommit(t *testing.T) {
	for _, bad := range []map[string]string{{hamiCore: "/nowhere", hamiCore + "-build": "abc"}, {hamiCore: "/bin/sh"}} {
		if _, err := parseHAMi(bench.Env{Args: bad}); err == nil {
			t.Errorf("%v was taken", bad)
		}
	}
}

func TestHAMiIsComparedSubjectBySubject(t *testing.T) {
	subject := func(name, way string, refused int, held float64) bench.Row {
		return bench.Row{
			"way": way, "subject": name, "limit": float64(limit), "processes": 1, "granted": held, "held": held,
			"answered": 1, "refused": refused, "freed": 1, "on": 1, "denied": 0, "failed_open": 0,
		}
	}
	step := func(name, way string, seconds float64) bench.Row {
		return bench.Row{"way": way, "subject": name, "step_s": seconds, "steps": 9}
	}
	rows := []bench.Row{
		subject("cuMemAlloc", without, 0, most), subject("cuMemAlloc", guarded, 1, limit), subject("cuMemAlloc", hamiCore, 1, limit),
		subject("CUDA graph, nodes by hand", without, 0, most), subject("CUDA graph, nodes by hand", guarded, 1, limit), subject("CUDA graph, nodes by hand", hamiCore, 0, most),
		step(normal, without, 0.01), step(normal, guarded, 0.012), step(normal, without, 0.02), step(normal, guarded, 0.021),
		step(normal, without, 0.03), step(normal, guarded, 0.03),
		step(normal+apart, without, 0.02), step(normal+apart, guarded, 0.02), step(normal+apart, hamiCore, 0.03),
	}
	got := map[string]bench.Figure{}
	for _, f := range Limits().FiguresOf(rows) {
		got[f.Name] = f
	}
	if f := got["limits_refused"]; f.Value != 2 || f.Unit != "of 2 ways" {
		t.Errorf("ours: %+v", f)
	}
	if f := got["limits_hami_core_refused"]; f.Value != 1 || f.Unit != "of 2 ways" {
		t.Errorf("theirs: %+v", f)
	}
	if f := got["limits_hami_core_most_over"]; f.Value != 3*1024 {
		t.Errorf("what slipped: %+v", f)
	}
	near := func(a, b float64) bool { return math.Abs(a-b) < 1e-9 }
	if f := got["hami_core_step_more_ms"]; !near(f.Value, 10) || f.Ratio != 1.5 { // against its own process, not the attached one
		t.Errorf("a step: %+v", f)
	}
	if f := got["guard_step_more_ms"]; !near(f.Value, 1) || !near(f.Ratio, 1.05) || f.Runs != 3 { // pair by pair
		t.Errorf("our step: %+v", f)
	}
	if q1, q3 := got["guard_step_more_ms_q1"], got["guard_step_more_ms_q3"]; !near(q1.Value, 0.5) || !near(q3.Value, 1.5) {
		t.Errorf("its quartiles: %+v, %+v", q1, q3)
	}
	if lines := limitTable(rows); len(lines) != 1+6+5 {
		t.Errorf("%d lines: %q", len(lines), lines)
	}
}
