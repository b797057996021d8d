// Package swaps reads which processes are swapped: off the GPU, but not ended. The actuator
// checkpoints containers, and leaves a notice in a folder for each.
//
// A notice is a file NAME.json, written before the first process leaves the GPU and removed
// after the last one is back:
//
//	{"container_id":"…","processes":[{"pid":123,"start_ticks":456}]}
//
// with PIDs of the host, and the processes' start as field 22 of /proc/PID/stat has it. Its
// writer must write it elsewhere and rename it, so that it is always complete. The exporter
// believes it for processes that live, that belong to this container, and that the device
// does not list.
package swaps

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// DefaultDir is the default folder of notices.
const DefaultDir = "/run/laxity/swapped"

// Dir is a folder of notices. A folder that does not exist has no notices.
type Dir string

type notice struct {
	ContainerID string `json:"container_id"`
	Processes   []struct {
		PID int `json:"pid"`
	} `json:"processes"`
}

// whole reports whether the notice names its container, and only PIDs above 0.
func (n notice) whole() bool {
	for _, p := range n.Processes {
		if p.PID <= 0 {
			return false
		}
	}
	return n.ContainerID != ""
}

// Swapped returns the container id of each swapped process, by PID. For notices that it
// cannot read it returns an error, together with those it can read.
func (d Dir) Swapped() (map[int]string, error) {
	entries, err := os.ReadDir(string(d))
	if errors.Is(err, fs.ErrNotExist) || len(entries) == 0 && err == nil {
		return nil, nil
	}
	off, errs := map[int]string{}, []error{err}
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ".json") {
			continue
		}
		text, err := os.ReadFile(filepath.Join(string(d), e.Name()))
		if errors.Is(err, fs.ErrNotExist) {
			continue // it was removed in the meantime
		}
		var n notice
		if err == nil {
			err = json.Unmarshal(text, &n)
		}
		if err == nil && !n.whole() {
			err = errors.New("it names no container, or no process")
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("notice of a swap %s: %w", e.Name(), err))
			continue
		}
		for _, p := range n.Processes {
			off[p.PID] = n.ContainerID
		}
	}
	return off, errors.Join(errs...)
}
