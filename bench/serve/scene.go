package serve

import (
	"fmt"
	"strings"

	"github.com/laxity/laxity/exporter/task"
)

// role is what a program does.
type role string

const (
	server  role = "server"
	decode  role = "decode" // a server, too: each token is a request
	text    role = "text"   // a server whose request is many tokens
	trainer role = "trainer"
)

// answers reports whether it is the program whose latency counts.
func (r role) answers() bool { return r != trainer }

// part is one program of a scene.
type part struct {
	name   string
	role   role
	labels map[string]string
}

// scene is what is measured together: its programs begin one after another, and a window is
// measured when so many of them have.
type scene struct {
	name  string
	parts []part
	begun []int
	ways  []string // that are compared unless --set ways says others
	// streams: each program computes on a CUDA stream of its own, not on the default one.
	streams bool
}

func request(deadline string) map[string]string {
	return map[string]string{task.LabelRelease: string(task.ReleaseBusy), task.LabelDeadline: deadline}
}

func trainers(n int) (all []part) {
	for i := range n {
		all = append(all, part{fmt.Sprintf("trainer-%d", i+1), trainer, map[string]string{task.LabelClass: string(task.ClassBatch)}})
	}
	return all
}

func serverBesideTrainers(name string) []part {
	return append([]part{{name, server, request("20ms")}}, trainers(4)...)
}

var (
	oneServer  = scene{name: "server", parts: serverBesideTrainers("server"), begun: []int{1, 2, 5}, ways: []string{timeSliced, laxity, withMPS, mpsPriority}}
	ownStreams = scene{name: "streams", parts: serverBesideTrainers("server-stream"), begun: []int{1, 2, 5}, ways: []string{timeSliced, laxity}, streams: true}

	others = []scene{
		{name: "two", parts: append([]part{{"server-10ms", server, request("10ms")}, {"server-50ms", server, request("50ms")}}, trainers(1)...),
			begun: []int{1, 2, 3}, ways: []string{timeSliced, laxity}},
		{name: "decode", parts: append([]part{{"decode", decode, request("20ms")}}, trainers(1)...), begun: []int{1, 2}, ways: []string{timeSliced, laxity}},
		{name: "text", parts: append([]part{{"text", text, request("500ms")}}, trainers(2)...), begun: []int{1, 2, 3}, ways: []string{timeSliced, laxity}},
	}

	scenes = append([]scene{oneServer, ownStreams}, others...)
)

// sceneCalled returns one of some scenes by its name.
func sceneCalled(name string, of []scene) (scene, error) {
	var names []string
	for _, s := range of {
		if s.name == name {
			return s, nil
		}
		names = append(names, s.name)
	}
	return scene{}, fmt.Errorf("--set scene=%s: write one of %s", name, strings.Join(names, ", "))
}
