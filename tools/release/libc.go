package main

import (
	"debug/elf"
	"fmt"
	"path/filepath"
	"strings"
)

// libcVersion is the oldest glibc with which all programs in bin start: the newest version of one
// of its symbols that they import. The packages depend on it.
func libcVersion(bin string) (string, error) {
	var newest [2]int
	for _, p := range programs {
		f, err := elf.Open(filepath.Join(bin, p))
		if err != nil {
			return "", err
		}
		symbols, err := f.ImportedSymbols()
		if closing := f.Close(); err == nil {
			err = closing
		}
		if err != nil {
			return "", fmt.Errorf("%s: %w", p, err)
		}
		for _, s := range symbols {
			var v [2]int
			if !strings.HasPrefix(s.Version, "GLIBC_") {
				continue
			}
			if n, _ := fmt.Sscanf(s.Version, "GLIBC_%d.%d", &v[0], &v[1]); n == 2 && (v[0] > newest[0] || v[0] == newest[0] && v[1] > newest[1]) {
				newest = v
			}
		}
	}
	if newest == [2]int{} {
		return "", fmt.Errorf("the programs in %s import nothing of glibc: NVIDIA's libraries are called through it", bin)
	}
	return fmt.Sprintf("%d.%d", newest[0], newest[1]), nil
}
