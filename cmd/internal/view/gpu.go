package view

import (
	"cmp"
	"strings"

	"github.com/laxity/laxity/actuator/state"
	"github.com/laxity/laxity/exporter/task"
	"github.com/laxity/laxity/internal/plain"
)

// GPUName is a person's name of a GPU (task.Snapshot.GPUName); else the start of its UUID.
func GPUName(s *task.Snapshot, uuid string) string {
	return cmp.Or(s.GPUName(uuid), ShortGPU(uuid))
}

// ShortGPU is the start of a UUID, for a GPU of unknown index.
func ShortGPU(uuid string) string {
	const room = len("GPU-01234567")
	return plain.Line(uuid[:min(room, len(uuid))])
}

// NameGPUs replaces the UUIDs in a sentence by people's names: "GPU 0".
func NameGPUs(text string, s *task.Snapshot) string {
	var pairs []string
	for _, g := range s.GPUs {
		pairs = append(pairs, g.UUID, GPUName(s, g.UUID))
	}
	return nameGPUs(text, pairs)
}

// NameStateGPUs is NameGPUs with an actuator's facts.
func NameStateGPUs(text string, gpus []state.GPU) string {
	var pairs []string
	for _, g := range gpus {
		pairs = append(pairs, g.UUID, g.Index)
	}
	return nameGPUs(text, pairs)
}

// nameGPUs takes pairs of UUID and name.
func nameGPUs(text string, pairs []string) string {
	if !strings.Contains(text, "-") { // every UUID has one
		return text
	}
	var with []string
	for i := 0; i+1 < len(pairs); i += 2 {
		if uuid, name := pairs[i], "GPU "+pairs[i+1]; uuid != "" && pairs[i+1] != "" {
			with = append(with, "GPU "+uuid, name, uuid, name)
		}
	}
	return strings.NewReplacer(with...).Replace(text)
}
