package oci_test

import (
	"reflect"
	"strings"
	"testing"

	"github.com/laxity/laxity/internal/oci"
)

func TestRead(t *testing.T) {
	got := oci.Read([]byte(`{"process": {"args": ["/a", "b"], "env": ["X=1"], "cwd": "/"}, "more": {"x": [1]},
		"annotations": {"cdi.k8s.io/plugin": "nvidia.com/gpu=0,nvidia.com/gpu=1", "k": "v"}, "linux": {"devices": [{"path": "/dev/nvidia0", "type": "c"}]}}`))
	want := oci.Spec{Command: []string{"/a", "b"}, Env: []string{"X=1"}, Devices: []string{"/dev/nvidia0"}, CDI: []string{"nvidia.com/gpu=0", "nvidia.com/gpu=1"},
		Annotations: map[string]string{"cdi.k8s.io/plugin": "nvidia.com/gpu=0,nvidia.com/gpu=1", "k": "v"}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	for _, text := range []string{"", "null", "[]", `{"process": 1}`} {
		if got := oci.Read([]byte(text)); !reflect.DeepEqual(got, oci.Spec{}) {
			t.Errorf("%q: %+v", text, got)
		}
	}
}

func TestLongID(t *testing.T) {
	for id, want := range map[string]bool{strings.Repeat("0a", 32): true, strings.Repeat("0A", 32): false, strings.Repeat("0a", 31): false, "": false} {
		if oci.LongID(id) != want {
			t.Errorf("%q: %v", id, !want)
		}
	}
}
