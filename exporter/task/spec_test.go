package task_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/laxity/laxity/exporter/task"
)

// Whoever writes labels does not decide how much is said of them: a snapshot that is too large blinds
// the actuator for all containers of the node.
func TestInvalidLabelsAreBounded(t *testing.T) {
	long, many := strings.Repeat("<", 250_000), map[string]string{}
	for i := range 16_000 {
		many[fmt.Sprint("laxity.x", i)] = "1"
	}
	for name, labels := range map[string]map[string]string{
		"long value": {"laxity.deadline": long}, "long name": {"laxity." + long: "1"}, "many": many,
		"all long": {"laxity.deadline": long, "laxity.share": long, "laxity.gpu-memory": long, "laxity.pause": long, "laxity.class": long, "laxity.release": long, "laxity.gang": long},
	} {
		s, invalid := task.ParseLabels(labels)
		text, err := json.Marshal(invalid)
		if err != nil || len(text) > 16<<10 || len(invalid) == 0 {
			t.Errorf("%s: %d labels in %d bytes (%v)", name, len(invalid), len(text), err)
		}
		if want := labels["laxity.pause"] != ""; s.NeverPause != want || s.Managed != (labels["laxity.deadline"] != "") || s.Deadline != 0 {
			t.Errorf("%s: %+v", name, s)
		}
	}
	_, invalid := task.ParseLabels(many)
	if last := invalid[len(invalid)-1]; last.Hint != "15992 more labels cannot be read" {
		t.Errorf("the last of them is %+v", last)
	}
	// A unit beyond the bound must not be lost: 9 seconds are not 9 milliseconds.
	if s, _ := task.ParseLabels(map[string]string{"laxity.deadline": "9." + strings.Repeat("0", 200) + "ms"}); s.Deadline != 0 {
		t.Errorf("a deadline of %v", s.Deadline)
	}
}

func TestParseLabels(t *testing.T) {
	plain := task.Spec{Managed: true, Class: task.ClassBatch, Release: task.ReleaseProcess}
	with := func(change func(*task.Spec)) task.Spec { s := plain; change(&s); return s }
	for name, tc := range map[string]struct {
		labels  map[string]string
		want    task.Spec
		invalid []string // labels
	}{
		"no labels":          {nil, task.Spec{Class: task.ClassBatch, Release: task.ReleaseProcess}, nil},
		"others' labels":     {map[string]string{"com.example": "1"}, task.Spec{Class: task.ClassBatch, Release: task.ReleaseProcess}, nil},
		"deadline":           {map[string]string{"laxity.deadline": "9s"}, with(func(s *task.Spec) { s.Deadline, s.Class = 9, task.ClassDeadline }), nil},
		"deadline in P1's":   {map[string]string{"laxity.deadline": "9"}, with(func(s *task.Spec) { s.Deadline, s.Class = 9, task.ClassDeadline }), nil},
		"bad deadline":       {map[string]string{"laxity.deadline": "soon"}, plain, []string{"laxity.deadline"}},
		"batch by choice":    {map[string]string{"laxity.deadline": "1m", "laxity.class": "batch"}, with(func(s *task.Spec) { s.Deadline = 60 }), nil},
		"bad class":          {map[string]string{"laxity.class": "vip"}, plain, []string{"laxity.class"}},
		"memory":             {map[string]string{"laxity.gpu-memory": "4GiB"}, with(func(s *task.Spec) { s.GPUMemory = 4 << 30 }), nil},
		"bad memory":         {map[string]string{"laxity.gpu-memory": "-1"}, plain, []string{"laxity.gpu-memory"}},
		"share":              {map[string]string{"laxity.share": "30%"}, with(func(s *task.Spec) { s.Share = 0.3 }), nil},
		"bad share":          {map[string]string{"laxity.share": "30"}, plain, []string{"laxity.share"}},
		"never pause":        {map[string]string{"laxity.pause": "never"}, with(func(s *task.Spec) { s.NeverPause = true }), nil},
		"bad pause is never": {map[string]string{"laxity.pause": "maybe"}, with(func(s *task.Spec) { s.NeverPause = true }), []string{"laxity.pause"}},
		"allow":              {map[string]string{"laxity.pause": "allow"}, plain, nil},
		"busy":               {map[string]string{"laxity.release": "busy"}, with(func(s *task.Spec) { s.Release = task.ReleaseBusy }), nil},
		"bad release":        {map[string]string{"laxity.release": "idle"}, plain, []string{"laxity.release"}},
		"unknown label":      {map[string]string{"laxity.deadlin": "9s"}, task.Spec{Class: task.ClassBatch, Release: task.ReleaseProcess}, []string{"laxity.deadlin"}},
		"unknown, never":     {map[string]string{"laxity.puase": "never"}, task.Spec{Class: task.ClassBatch, Release: task.ReleaseProcess}, []string{"laxity.puase"}},
		"prefix alone":       {map[string]string{"laxity.": "never"}, task.Spec{Class: task.ClassBatch, Release: task.ReleaseProcess}, []string{"laxity."}},
		"unknown beside":     {map[string]string{"laxity.puase": "never", "laxity.deadline": "9s"}, with(func(s *task.Spec) { s.Deadline, s.Class = 9, task.ClassDeadline }), []string{"laxity.puase"}},
		"several, sorted": {map[string]string{"laxity.release": "x", "laxity.deadline": "0"}, plain,
			[]string{"laxity.deadline", "laxity.release"}},
	} {
		t.Run(name, func(t *testing.T) {
			got, invalid := task.ParseLabels(tc.labels)
			if got != tc.want {
				t.Errorf("spec = %+v, want %+v", got, tc.want)
			}
			var names []string
			for _, i := range invalid {
				names = append(names, i.Label)
				if i.Hint == "" || !strings.Contains(i.Error(), i.Hint) {
					t.Errorf("%v has no hint", i)
				}
			}
			if strings.Join(names, " ") != strings.Join(tc.invalid, " ") {
				t.Errorf("invalid = %v, want %v", names, tc.invalid)
			}
		})
	}
}

// A claim beyond the limits is reported as a label that cannot be read, and counts as
// none.
func TestLimits(t *testing.T) {
	l := task.Limits{MinDeadline: 100 * time.Millisecond, MaxShare: 0.3}
	for name, tc := range map[string]struct {
		labels  map[string]string
		want    task.Spec
		invalid int
	}{
		"within":             {map[string]string{"laxity.deadline": "100ms", "laxity.share": "30%"}, task.Spec{Deadline: 0.1, Share: 0.3, Class: task.ClassDeadline}, 0},
		"too short":          {map[string]string{"laxity.deadline": "99ms", "laxity.share": "30%"}, task.Spec{Share: 0.3, Class: task.ClassBatch}, 1},
		"too large":          {map[string]string{"laxity.deadline": "1s", "laxity.share": "31%"}, task.Spec{Deadline: 1, Class: task.ClassDeadline}, 1},
		"neither":            {map[string]string{"laxity.deadline": "1ns", "laxity.share": "100%"}, task.Spec{Class: task.ClassBatch}, 2},
		"nothing is limited": {map[string]string{"laxity.gpu-memory": "1GiB"}, task.Spec{GPUMemory: 1 << 30, Class: task.ClassBatch}, 0},
	} {
		tc.want.Managed, tc.want.Release = true, task.ReleaseProcess
		got, invalid := l.ParseLabels(tc.labels)
		if got != tc.want || len(invalid) != tc.invalid {
			t.Errorf("%s: %+v, %v", name, got, invalid)
		}
		for _, bad := range invalid {
			if !strings.Contains(bad.Hint, "--deadline.min") && !strings.Contains(bad.Hint, "--share.max") {
				t.Errorf("%s: %v does not name the limit", name, bad)
			}
		}
	}
	if err := l.CheckDeadline(99 * time.Millisecond); !errors.Is(err, task.ErrLimit) {
		t.Errorf("at run time: %v", err)
	}
	if l.CheckDeadline(0) != nil || l.CheckDeadline(time.Second) != nil {
		t.Error("none, or a long one, is refused")
	}
	for _, bad := range []task.Limits{{MinDeadline: -1}, {MaxShare: -0.1}, {MaxShare: 1.1}, {MaxShare: math.NaN()}} {
		if bad.Validate() == nil {
			t.Errorf("%+v was taken", bad)
		}
	}
}

func TestParseDeadline(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"9s": 9 * time.Second, "250ms": 250 * time.Millisecond, "9": 9 * time.Second,
		"0.5": 500 * time.Millisecond, "1h30m": 90 * time.Minute,
	} {
		if got, err := task.ParseDeadline(text); err != nil || got != want {
			t.Errorf("ParseDeadline(%q) = %v, %v; want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "0", "-1", "-9s", "0s", "soon", "NaN", "Inf", "1e300", "9 s", "0x"} {
		if got, err := task.ParseDeadline(text); err == nil {
			t.Errorf("ParseDeadline(%q) = %v, want an error", text, got)
		}
	}
}

func TestParseBytes(t *testing.T) {
	for text, want := range map[string]uint64{
		"4GiB": 4 << 30, "4g": 4 << 30, "4GB": 4 << 30, "512MiB": 512 << 20, "1.5 KiB": 1536,
		"1024": 1024, "1b": 1, "2T": 2 << 40, " 1k ": 1024,
	} {
		if got, err := task.ParseBytes(text); err != nil || got != want {
			t.Errorf("ParseBytes(%q) = %v, %v; want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "0", "-1", "4XiB", "GiB", "1.2.3M", "1e3", "0.1b", "99999999999999T", "4 Gi B"} {
		if got, err := task.ParseBytes(text); err == nil {
			t.Errorf("ParseBytes(%q) = %v, want an error", text, got)
		}
	}
}

func TestParseShare(t *testing.T) {
	for text, want := range map[string]float64{"30%": 0.3, "12.5 %": 0.125, " 100% ": 1, "0.5%": 0.005} {
		if got, err := task.ParseShare(text); err != nil || got != want {
			t.Errorf("ParseShare(%q) = %v, %v; want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "%", "30", "0.3", "0%", "-5%", "101%", "NaN%", "Inf%", "a third", "30%%"} {
		if got, err := task.ParseShare(text); err == nil {
			t.Errorf("ParseShare(%q) = %v, want an error", text, got)
		}
	}
}
