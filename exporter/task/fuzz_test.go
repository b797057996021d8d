package task_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/laxity/laxity/exporter/task"
)

// Whatever a user writes in labels, what comes out is within bounds and limits, what is
// reported has a hint, and what cannot be read takes its safe value.
func FuzzParseLabels(f *testing.F) {
	for _, seed := range [][6]string{
		{"9s", "30%", "4GiB", "never", "batch", "busy"}, {"9", "12.5 %", "512mb", "allow", "deadline", "process"}, {"0.1", "100%", "1", "", "", ""},
		{"-1s", "0%", "-1", "maybe", "vip", "idle"}, {"1e400", "NaN%", "1e30T", "NEVER", "", ""}, {"Inf", "+Inf%", "0x10", "never ", "batch\n", "\x00"},
		{"876000h1ns", "100.0000001%", "9223372036854775807B", "\x1b[2J", "x", "y"}, {"1ns", "1e-300%", ".", "allow", "deadline", "busy"},
	} {
		f.Add(seed[0], seed[1], seed[2], seed[3], seed[4], seed[5], int64(time.Millisecond), 0.5, "laxity.deadlin", "9s")
	}
	f.Fuzz(func(t *testing.T, deadline, share, memory, pause, class, release string, least int64, most float64, other, value string) {
		labels := map[string]string{}
		for label, v := range map[string]string{task.LabelDeadline: deadline, task.LabelShare: share, task.LabelGPUMemory: memory,
			task.LabelPause: pause, task.LabelClass: class, task.LabelRelease: release} {
			if v != "" {
				labels[label] = v
			}
		}
		if s, _ := task.ParseLabels(map[string]string{other: value}); s.Managed != slices.Contains(task.KnownLabels, other) {
			t.Errorf("%q: managed %v", other, s.Managed)
		}
		l := task.Limits{MinDeadline: time.Duration(least), MaxShare: most}
		if l.Validate() != nil {
			l = task.Limits{}
		}
		s, invalid := l.ParseLabels(labels)
		if text, err := json.Marshal(invalid); err != nil || len(text) > 16<<10 {
			t.Errorf("%d bytes are said of labels that cannot be read (%v)", len(text), err)
		}
		bad := map[string]bool{}
		for _, i := range invalid {
			bad[i.Label] = true
			if i.Hint == "" {
				t.Errorf("%v has no hint", i)
			}
		}
		if !slices.IsSortedFunc(invalid, func(a, b task.InvalidLabel) int { return strings.Compare(a.Label, b.Label) }) {
			t.Errorf("not sorted: %v", invalid)
		}
		d := s.Deadline.Duration()
		if !(s.Deadline >= 0) || d > task.MaxDeadline || bad[task.LabelDeadline] != (deadline != "" && s.Deadline == 0) || s.Deadline > 0 && l.CheckDeadline(d) != nil {
			t.Errorf("deadline %q: %v, %v", deadline, s.Deadline, invalid)
		}
		if !(s.Share >= 0 && s.Share <= 1) || l.MaxShare > 0 && s.Share > l.MaxShare || bad[task.LabelShare] && s.Share != 0 {
			t.Errorf("share %q: %v, %v", share, s.Share, invalid)
		}
		if bad[task.LabelGPUMemory] && s.GPUMemory != 0 || bad[task.LabelPause] && !s.NeverPause {
			t.Errorf("not the safe value: %+v, %v", s, invalid)
		}
		if s.Managed != (len(labels) > 0) || s.Class != task.ClassBatch && s.Class != task.ClassDeadline || s.Release != task.ReleaseBusy && s.Release != task.ReleaseProcess {
			t.Errorf("%+v", s)
		}
		if _, err := json.Marshal(s); err != nil {
			t.Errorf("it cannot be published: %v", err)
		}
	})
}
