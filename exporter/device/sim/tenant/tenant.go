// Package tenant makes containers that compute on a simulated GPU, or on a real
// one: an image that holds nothing but the CUDA workload, and the mounts and
// variables that give a container the stand-in libcuda and the simulated GPU's
// socket, as NVIDIA's toolkit gives it driver and device nodes. For demos and
// tests; no daemon imports it.
package tenant

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/api/types/mount"
	"github.com/docker/docker/client"

	"github.com/laxity/laxity/exporter/device/sim/cuda"
	"github.com/laxity/laxity/internal/workload"
)

// Where a container finds them.
const (
	socketDir  = "/run/laxity-sim"
	libraryDir = "/usr/local/lib/laxity-sim"
)

// Mounts gives a container the simulated GPU behind socket, and the stand-in
// library in libDir (see cuda.Build). Folders are mounted, not files, so that a
// server that starts again is found again.
func Mounts(socket, libDir string) []mount.Mount {
	return []mount.Mount{
		{Type: mount.TypeBind, Source: filepath.Dir(socket), Target: socketDir},
		{Type: mount.TypeBind, Source: libDir, Target: libraryDir, ReadOnly: true},
	}
}

// Env is what a container with these mounts needs in its environment.
func Env(socket string) []string {
	return []string{
		cuda.EnvSocket + "=" + Beside(filepath.Base(socket)),
		"LD_LIBRARY_PATH=" + libraryDir,
	}
}

// Beside is where a container with these mounts finds a file in the folder of the socket.
func Beside(name string) string { return filepath.Join(socketDir, name) }

// BuildImage makes an image called tag whose entry point is the CUDA workload,
// with the libraries of this machine that it and a real libcuda need. There is
// nothing else in it, no shell either. It needs no registry, and gcc only where
// workload.Build does.
func BuildImage(ctx context.Context, docker client.ImageAPIClient, tag string) error {
	root, err := Root(ctx)
	if err != nil {
		return fmt.Errorf("image %s: %w", tag, err)
	}
	answer, err := docker.ImageImport(ctx, image.ImportSource{Source: root, SourceName: "-"}, tag,
		image.ImportOptions{Changes: []string{`ENTRYPOINT ["/matmul"]`}})
	if err != nil {
		return fmt.Errorf("image %s: %w", tag, err)
	}
	defer answer.Close()
	text, err := io.ReadAll(answer)
	if err == nil && bytes.Contains(text, []byte(`"error"`)) {
		err = errors.New(string(text))
	}
	if err != nil {
		return fmt.Errorf("image %s: %w", tag, err)
	}
	return nil
}

// Root is what is in the image, as a tar archive; the program is /matmul.
func Root(ctx context.Context) (io.Reader, error) {
	program, err := workload.Build("")
	if err != nil {
		return nil, err
	}
	return rootOf(ctx, program)
}

// Tag is the name of the image with this version of the workload.
func Tag() (string, error) {
	program, err := workload.Build("")
	if err != nil {
		return "", err
	}
	folder := filepath.Base(filepath.Dir(program)) // it is named by the content
	return "laxity-sim:" + folder[strings.LastIndex(folder, "-")+1:], nil
}

// rootOf packs program and what it needs into a tar archive.
func rootOf(ctx context.Context, program string) (io.Reader, error) {
	libs, err := librariesOf(ctx, program)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, dir := range []string{"tmp/", "proc/", "sys/", "dev/", "etc/", "run/"} {
		mode := int64(0o755)
		if dir == "tmp/" {
			mode = 0o1777
		}
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: dir, Mode: mode}); err != nil {
			return nil, err
		}
	}
	if err := addFile(w, "matmul", program); err != nil {
		return nil, err
	}
	for _, lib := range libs {
		if err := addFile(w, strings.TrimPrefix(lib, "/"), lib); err != nil {
			return nil, err
		}
	}
	return &out, w.Close()
}

func addFile(w *tar.Writer, name, path string) error {
	content, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o755, Size: int64(len(content))}); err != nil {
		return err
	}
	_, err = w.Write(content)
	return err
}

var libraryPath = regexp.MustCompile(`(?m)(/\S+)\s+\(0x`)

// librariesOf is what the dynamic linker loads for program, and those of libc's
// companions that a real libcuda links to besides.
func librariesOf(ctx context.Context, program string) ([]string, error) {
	text, err := exec.CommandContext(ctx, "ldd", program).CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("ldd %s: %w: %s", program, err, text)
	}
	seen := map[string]bool{}
	var libs []string
	add := func(path string) {
		if _, err := os.Stat(path); err == nil && !seen[path] {
			seen[path] = true
			libs = append(libs, path)
		}
	}
	for _, m := range libraryPath.FindAllStringSubmatch(string(text), -1) {
		add(m[1])
		if strings.HasPrefix(filepath.Base(m[1]), "libc.so") {
			for _, more := range []string{"libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1", "libgcc_s.so.1"} {
				add(filepath.Join(filepath.Dir(m[1]), more))
			}
		}
	}
	if len(libs) == 0 {
		return nil, fmt.Errorf("ldd %s: no libraries in %q", program, text)
	}
	return libs, nil
}
