package run_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/laxity/laxity/actuator/admission"
	"github.com/laxity/laxity/actuator/placement/api"
	"github.com/laxity/laxity/cmd/laxity/internal/run"
)

// docker puts a docker on the path that only notes that it was called.
func docker(t *testing.T) (called func() bool) {
	t.Helper()
	dir := t.TempDir()
	note := filepath.Join(dir, "called")
	if err := os.WriteFile(filepath.Join(dir, "docker"), []byte("#!/bin/sh\n: > "+note+"\n"), 0o700); err != nil { //nolint:gosec // it is to be run
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
	return func() bool { _, err := os.Stat(note); return err == nil }
}

func TestRequire(t *testing.T) {
	unmet := admission.Answer{Result: admission.Unmet, Reason: "it needs 3s", Node: "here", GPU: gpu, EarliestDeadline: 12.04}
	never, share := unmet, unmet
	never.EarliestDeadline, share.EarliestDeadline = 0, 0
	unknown := admission.Answer{Result: admission.Unknown, Reason: "no task of image i has ended here"}
	refused := &api.RefusedError{Code: 409, Failure: api.Failure{Error: "no node can take it"}}
	for name, tc := range map[string]struct {
		actuator *actuator
		args     string
		code     int
		runs     bool
		says     string
	}{
		"it can be met":             {&actuator{answer: admission.Answer{Result: admission.Met}}, "--require --deadline 9s i", 0, true, ""},
		"it cannot":                 {&actuator{answer: unmet}, "--require --deadline 9s i", run.ExitRefused, false, "refused (--require) on node here: it needs 3s; a deadline of 13s could be met there now"},
		"it never can":              {&actuator{answer: never}, "--require --deadline 9s i", run.ExitRefused, false, "no deadline could be met there now"},
		"it cannot, here":           {&actuator{answer: unmet}, "--require --node=local --deadline 9s i", run.ExitRefused, false, "it needs 3s"},
		"a share":                   {&actuator{answer: share}, "--require --label laxity.share=30% i", run.ExitRefused, false, "on node here: it needs 3s"},
		"nobody asked":              {&actuator{answer: unmet}, "--deadline 9s i", 0, true, ""},
		"nobody knows":              {&actuator{answer: unknown}, "--require --deadline 9s i", 0, true, "it starts, and nobody can say whether its deadline can be met: no task of image i has ended here"},
		"nobody knows, so it stays": {&actuator{answer: unknown}, "--require=known --deadline 9s i", run.ExitRefused, false, "no task of image i has ended here; with --estimate"},
		"nobody answers":            {&actuator{}, "--require --node=local --deadline 9s i", run.ExitFailed, false, "leave --require out"},
		"no node can":               {&actuator{placeErr: refused}, "--require --deadline 9s i", run.ExitRefused, false, "no node can take it"},
		"no node can, unrequired":   {&actuator{placeErr: refused}, "--deadline 9s i", run.ExitFailed, false, "no node can take it"},
	} {
		t.Run(name, func(t *testing.T) {
			called := docker(t)
			a := tc.actuator
			a.next = []api.Placement{local("p1")}
			r := do(t, a, strings.Fields(tc.args)...)
			said := r.String()
			if r.err != nil {
				said += r.err.Error()
			}
			if r.code != tc.code || called() != tc.runs || !strings.Contains(said, tc.says) || tc.says == "" && said != "" {
				t.Errorf("code %d, docker called: %v, says %q", r.code, called(), said)
			}
			if left := a.placeErr == nil && !strings.Contains(tc.args, "local"); left && len(a.released) != 1 {
				t.Errorf("the reservation was released %d times", len(a.released))
			}
		})
	}
}

func TestRequireAsksAboutTheChosenGPU(t *testing.T) {
	docker(t)
	a := &actuator{next: []api.Placement{local("p1")}, answer: admission.Answer{Result: admission.Met}}
	do(t, a, "--require", "--deadline", "20ms", "-llaxity.release=busy", "--label=laxity.share=30%", "--estimate", "3ms", "i")
	want := admission.Question{Node: "here", GPU: gpu, Image: "i", Server: true, Deadline: 20 * time.Millisecond, Estimate: 3 * time.Millisecond, Share: 0.3}
	if a.asked != want {
		t.Errorf("asked %+v, want %+v", a.asked, want)
	}
}

// Where the user hands the GPUs out, the question is about those.
func TestRequireAsksAboutGPUsChosenByHand(t *testing.T) {
	for args, want := range map[string]string{
		"--node=local --gpus device=1":                                 "1",
		"--node=local --gpus \"device=0,2\",capabilities=compute":      "0 2",
		"--node=local --device nvidia.com/gpu=1 --device /dev/nvidia3": "1 3",
		"--node=local -e NVIDIA_VISIBLE_DEVICES=GPU-a":                 "GPU-a",
		"--node=local --gpus all":                                      "",
		"--node=local --gpus 2":                                        "",
		"--gpu-request=none --gpus device=1":                           "1",
		"":                                                             gpu,
	} {
		t.Run(args, func(t *testing.T) {
			docker(t)
			a := &actuator{next: []api.Placement{local("p1")}, answer: admission.Answer{Result: admission.Met}}
			do(t, a, append(strings.Fields(args), "--require", "--deadline", "20ms", "i")...)
			if got := strings.Join(a.gpus, " "); got != want {
				t.Errorf("it asked about %q, want %q", got, want)
			}
		})
	}
}
