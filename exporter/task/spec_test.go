package task_test

import (
	"strings"
	"testing"
	"time"

	"github.com/laxity/laxity/exporter/task"
)

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
		"unknown label":      {map[string]string{"laxity.deadlin": "9s"}, plain, []string{"laxity.deadlin"}},
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

// Whatever a user writes, parsing neither panics nor makes a container without
// laxity labels managed.
func FuzzParseLabels(f *testing.F) {
	f.Add("laxity.deadline", "9s")
	f.Add("laxity.gpu-memory", "1e400GiB")
	f.Add("laxity.share", "1e-400%")
	f.Fuzz(func(t *testing.T, label, value string) {
		s, _ := task.ParseLabels(map[string]string{label: value})
		if s.Managed != strings.HasPrefix(label, task.LabelPrefix) {
			t.Errorf("%q: Managed = %v", label, s.Managed)
		}
		if s.Deadline < 0 || s.Deadline > task.SecondsOf(task.MaxDeadline) {
			t.Errorf("%q: deadline %v", value, s.Deadline)
		}
		if !(s.Share >= 0 && s.Share <= 1) {
			t.Errorf("%q: share %v", value, s.Share)
		}
	})
}
