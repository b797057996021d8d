package main

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// sums is the name of the file that `sha256sum --check` reads.
const sums = "sha256sums"

// writeSums writes the checksums of all files in dir, in the order of their names.
func writeSums(dir string) error {
	files, err := os.ReadDir(dir) // sorted
	if err != nil {
		return err
	}
	var text strings.Builder
	for _, f := range files {
		content, err := os.ReadFile(filepath.Join(dir, f.Name()))
		if err != nil {
			return err
		}
		fmt.Fprintf(&text, "%x  %s\n", sha256.Sum256(content), f.Name())
	}
	return os.WriteFile(filepath.Join(dir, sums), []byte(text.String()), 0o644)
}
