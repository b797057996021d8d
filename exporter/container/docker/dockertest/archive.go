package dockertest

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
)

// library finds a path in a line that ldd prints: "libc.so.6 => /lib/libc.so.6
// (0x…)" or "/lib64/ld-linux-x86-64.so.2 (0x…)".
var library = regexp.MustCompile(`(?m)(/\S+) \(0x`)

// archive returns a tar stream of programs, their libraries and further files.
func archive(ctx context.Context, programs []string, files map[string]string) (io.Reader, error) {
	all := map[string]string{}
	for _, program := range programs {
		path, err := exec.LookPath(program)
		if err != nil {
			return nil, err
		}
		all[path] = path
		out, err := exec.CommandContext(ctx, "ldd", path).Output()
		if err != nil {
			continue // linked statically
		}
		for _, match := range library.FindAllStringSubmatch(string(out), -1) {
			all[match[1]] = match[1]
		}
	}
	for to, from := range files {
		all[to] = from
	}
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	if err := w.WriteHeader(&tar.Header{Name: "tmp/", Typeflag: tar.TypeDir, Mode: 0o1777}); err != nil {
		return nil, err
	}
	for to, from := range all {
		if err := add(w, to, from); err != nil {
			return nil, fmt.Errorf("add %s: %w", from, err)
		}
	}
	return &out, w.Close()
}

func add(w *tar.Writer, to, from string) error {
	content, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	name, err := filepath.Rel("/", to)
	if err != nil {
		return err
	}
	if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o755, Size: int64(len(content))}); err != nil {
		return err
	}
	_, err = w.Write(content)
	return err
}
