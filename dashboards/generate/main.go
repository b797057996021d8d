// Command generate writes the Grafana dashboards into the folder above:
//
//	go run ./dashboards/generate
//
// A test fails where the files say something else. It is Go and not JSON by hand so
// that queries that several panels share are said once, and panels cannot overlap.
package main

import (
	"fmt"
	"os"
	"path/filepath"
)

// dashboards are all of ours, by file name.
func dashboards() map[string]dashboard {
	return map[string]dashboard{
		"fleet.json": fleet(), "gpu.json": gpu(), "node.json": node(), "container.json": container(), "actuator.json": actuator(),
	}
}

func main() {
	folder := "dashboards"
	if len(os.Args) > 1 {
		folder = os.Args[1]
	}
	for name, d := range dashboards() {
		content, err := d.encode()
		if err == nil {
			err = os.WriteFile(filepath.Join(folder, name), content, 0o644) //nolint:gosec // everybody may read it
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "generate:", err)
			os.Exit(1)
		}
	}
}
