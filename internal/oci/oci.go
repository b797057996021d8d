// Package oci reads what we need of a container's OCI specification.
//
// It is a leaf. It imports the standard library.
package oci

import (
	"encoding/json"
	"strings"
)

// Spec is what we read of a container's specification.
type Spec struct {
	Command []string
	// Env is the environment of its first process; Devices are the device files that it got, CDI
	// the names of devices that were asked for by annotation (vendor.com/class=name).
	Env, Devices, CDI []string
	Annotations       map[string]string
}

// Read reads a specification (config.json). What cannot be read is not known, and absent.
func Read(text []byte) Spec {
	var raw struct {
		Process struct {
			Args []string `json:"args"`
			Env  []string `json:"env"`
		} `json:"process"`
		Annotations map[string]string `json:"annotations"`
		Linux       struct {
			Devices []struct {
				Path string `json:"path"`
			} `json:"devices"`
		} `json:"linux"`
	}
	_ = json.Unmarshal(text, &raw)
	s := Spec{Command: raw.Process.Args, Env: raw.Process.Env, Annotations: raw.Annotations}
	for _, d := range raw.Linux.Devices {
		s.Devices = append(s.Devices, d.Path)
	}
	s.CDI = CDI(raw.Annotations)
	return s
}

// CDI returns the devices that annotations ask for.
func CDI(annotations map[string]string) (devices []string) {
	for key, value := range annotations {
		if strings.HasPrefix(key, "cdi.k8s.io/") {
			devices = append(devices, strings.Split(value, ",")...)
		}
	}
	return devices
}

// idLength is the length of the ids that nerdctl and Kubernetes' engines give: 32 bytes in hex.
const idLength = 64

// LongID reports whether an id can be told from other words in the path of a control group.
func LongID(id string) bool {
	return len(id) == idLength && strings.Trim(id, "0123456789abcdef") == ""
}
