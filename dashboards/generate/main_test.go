package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

func TestFilesAreGenerated(t *testing.T) {
	files, err := filepath.Glob("../*.json")
	if err != nil {
		t.Fatal(err)
	}
	all := dashboards()
	if len(files) != len(all) {
		t.Errorf("files %v, %d dashboards", files, len(all))
	}
	for name, d := range all {
		want, err := d.encode()
		if err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(filepath.Join("..", name)); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s is not what the program says (%v); run: go run ./dashboards/generate", name, err)
		}
	}
}
