// Package published_test holds the golden questions and answers of package
// kubernetes against the types that Kubernetes publishes. `go test -update`
// writes the questions anew.
package published_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	extender "k8s.io/kube-scheduler/extender/v1"
)

var update = flag.Bool("update", false, "write the questions anew")

func node(name string) corev1.Node {
	return corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"kubernetes.io/hostname": name}},
		Status: corev1.NodeStatus{Capacity: corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("4")}}}
}

func pod(annotations, labels map[string]string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "infer", Namespace: "team", UID: "7a0c", Annotations: annotations, Labels: labels},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "proxy", Image: "registry.example/proxy:1"}, {Name: "main", Image: "registry.example/model:1",
			Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("1")}}}}}}
}

func questions() map[string]extender.ExtenderArgs {
	names := []string{"n1", "n2", "n3", "n4", "n5", "elsewhere"}
	list := &corev1.NodeList{ListMeta: metav1.ListMeta{ResourceVersion: "7"}}
	for _, n := range names {
		list.Items = append(list.Items, node(n))
	}
	wants := map[string]string{"laxity.dev/deadline": "9s", "laxity.dev/gpu-memory": "4GiB"}
	large := map[string]string{"laxity.dev/gpu-memory": "75GiB"}
	return map[string]extender.ExtenderArgs{
		"names":   {Pod: pod(wants, nil), NodeNames: &names},
		"nodes":   {Pod: pod(wants, nil), Nodes: list},
		"labels":  {Pod: pod(nil, map[string]string{"laxity.deadline": "9s"}), NodeNames: &names},
		"large":   {Pod: pod(large, nil), NodeNames: &names},
		"foreign": {Pod: pod(nil, nil), Nodes: list},
		"invalid": {Pod: pod(map[string]string{"laxity.dev/deadline": "soon"}, nil), NodeNames: &names},
		"none":    {Pod: pod(wants, nil), NodeNames: &[]string{}},
	}
}

const golden = "../testdata"

func TestQuestions(t *testing.T) {
	for name, args := range questions() {
		got, err := json.MarshalIndent(args, "", " ")
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(golden, name+".question.json")
		if *update {
			if err := os.WriteFile(path, append(got, '\n'), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(bytes.TrimSpace(want), got) {
			t.Errorf("%s is not what the scheduler sends; go test -update", path)
		}
	}
}

// Every answer reads into the published type with nothing left over, and is the
// same when it is written again.
func TestAnswers(t *testing.T) {
	paths, _ := filepath.Glob(filepath.Join(golden, "*.answer.json"))
	if len(paths) == 0 {
		t.Fatal("no answers in testdata")
	}
	for _, path := range paths {
		raw, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		f := &extender.ExtenderFilterResult{}
		dec := json.NewDecoder(bytes.NewReader(raw))
		dec.DisallowUnknownFields()
		if err := dec.Decode(f); err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		if f.Nodes == nil {
			continue
		}
		for _, n := range f.Nodes.Items {
			if want := node(n.Name); n.Labels["kubernetes.io/hostname"] != n.Name || !n.Status.Capacity["nvidia.com/gpu"].Equal(want.Status.Capacity["nvidia.com/gpu"]) {
				t.Errorf("%s: node %s came back changed", path, n.Name)
			}
		}
	}
}
