package task_test

import (
	"strings"
	"testing"

	"github.com/laxity/laxity/exporter/task"
)

func member(name string, labels ...string) task.Container {
	all := map[string]string{task.LabelGang: "job"}
	for i := 0; i < len(labels); i += 2 {
		all[labels[i]] = labels[i+1]
	}
	c := task.Container{ID: name, Name: name}
	c.Spec, _ = task.ParseLabels(all)
	return c
}

func TestGangID(t *testing.T) {
	for _, tc := range []struct{ name, gang, want string }{
		{"rank-0", "job", "/job"},
		{"rank-0", "", ""},
		{"team-a/pod-0/rank", "job", "team-a/job"},
		{"team-b/pod-0/rank", "job", "team-b/job"},
	} {
		c := task.Container{Name: tc.name, Spec: task.Spec{Gang: tc.gang}}
		if got := c.GangID(); got != tc.want {
			t.Errorf("%s of %q: %q, want %q", tc.name, tc.gang, got, tc.want)
		}
	}
}

func TestGangName(t *testing.T) {
	for value, want := range map[string]string{
		"job": "job", "Train_7b.v2-x": "Train_7b.v2-x", strings.Repeat("a", 63): strings.Repeat("a", 63),
		"": "", "two words": "", "a/b": "", strings.Repeat("a", 64): "", "job\n": "",
	} {
		s, invalid := task.ParseLabels(map[string]string{task.LabelGang: value})
		if s.Gang != want || !s.Managed || (len(invalid) == 0) != (want != "") {
			t.Errorf("%q: gang %q, invalid %v", value, s.Gang, invalid)
		}
	}
}

// What gives a container its place must be the same in a gang; limits of memory and names are its own.
func TestGangConflicts(t *testing.T) {
	for _, tc := range []struct {
		what string
		list []task.Container
		want string // in the reason; "" is agreement
	}{
		{"one member", []task.Container{member("a")}, ""},
		{"the same", []task.Container{member("a", task.LabelDeadline, "9s"), member("b", task.LabelDeadline, "9000ms")}, ""},
		{"the default class", []task.Container{member("a"), member("b", task.LabelClass, "batch")}, ""},
		{"memory", []task.Container{member("a", task.LabelGPUMemory, "1GiB"), member("b")}, ""},
		{"deadline", []task.Container{member("a", task.LabelDeadline, "9s"), member("b", task.LabelDeadline, "5s")}, "laxity.deadline counts as 9s on a, and as 5s on b"},
		{"no deadline", []task.Container{member("a", task.LabelDeadline, "9s"), member("b", task.LabelClass, "deadline")}, "laxity.deadline"},
		{"class", []task.Container{member("a", task.LabelClass, "batch"), member("b", task.LabelClass, "deadline")}, "laxity.class counts as batch on a, and as deadline on b"},
		{"release", []task.Container{member("a"), member("b", task.LabelRelease, "busy")}, "laxity.release"},
		{"share", []task.Container{member("a", task.LabelShare, "30%"), member("b")}, "laxity.share counts as 30% on a, and as 0% on b"},
		{"pause", []task.Container{member("a"), member("b", task.LabelPause, "never")}, "laxity.pause counts as allow on a, and as never on b"},
		{"the third", []task.Container{member("a"), member("b"), member("c", task.LabelRelease, "busy")}, "on c"},
		{"two namespaces", []task.Container{member("x/p/a"), member("y/p/a", task.LabelRelease, "busy")}, ""},
	} {
		got := task.GangConflicts(tc.list)[tc.list[0].GangID()]
		if (got == "") != (tc.want == "") || !strings.Contains(got, tc.want) {
			t.Errorf("%s: %q, want %q", tc.what, got, tc.want)
		}
	}
}
