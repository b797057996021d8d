package containerd

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// Namespaces are those that have the images: nerdctl's and Kubernetes'.
var Namespaces = []string{"default", "k8s.io"}

// Import makes an image from nothing but files of this machine (path in the image → path here), in
// each of Namespaces.
func (e *Engine) Import(ctx context.Context, name string, files map[string]string, entrypoint []string) error {
	layer, err := layerOf(files)
	if err != nil {
		return err
	}
	return e.ImportLayer(ctx, name, layer, entrypoint)
}

// ImportLayer is Import of a tar archive.
func (e *Engine) ImportLayer(ctx context.Context, name string, layer []byte, entrypoint []string) error {
	archive, err := archiveOf(name, layer, entrypoint)
	if err != nil {
		return err
	}
	for _, namespace := range Namespaces {
		ctx := namespaces.WithNamespace(ctx, namespace)
		images, err := e.Client.Import(ctx, bytes.NewReader(archive))
		if err != nil {
			return fmt.Errorf("import image %s: %w", name, err)
		}
		for _, image := range images {
			if err := client.NewImage(e.Client, image).Unpack(ctx, snapshotter); err != nil {
				return fmt.Errorf("unpack image %s: %w", name, err)
			}
		}
	}
	return nil
}

func layerOf(files map[string]string) ([]byte, error) {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	if err := w.WriteHeader(&tar.Header{Name: "tmp/", Typeflag: tar.TypeDir, Mode: 0o1777}); err != nil {
		return nil, err
	}
	for to, from := range files {
		content, err := os.ReadFile(from)
		if err != nil {
			return nil, err
		}
		to, err = filepath.Rel("/", to)
		if err == nil {
			err = add(w, to, 0o755, content)
		}
		if err != nil {
			return nil, err
		}
	}
	return out.Bytes(), w.Close()
}

// archiveOf makes what docker save would of an image with one layer.
func archiveOf(name string, layer []byte, entrypoint []string) ([]byte, error) {
	image := ocispec.Image{
		Platform: ocispec.Platform{Architecture: runtime.GOARCH, OS: "linux"},
		Config:   ocispec.ImageConfig{Entrypoint: entrypoint},
	}
	image.RootFS.Type = "layers"
	config, err := json.Marshal(struct {
		ocispec.Image
		RootFS any `json:"rootfs"`
	}{image, map[string]any{"type": "layers", "diff_ids": []string{fmt.Sprintf("sha256:%x", sha256.Sum256(layer))}}})
	if err != nil {
		return nil, err
	}
	manifest, err := json.Marshal([]map[string]any{{"Config": "config.json", "RepoTags": []string{name}, "Layers": []string{"layer.tar"}}})
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, file := range []struct {
		name    string
		content []byte
	}{{"config.json", config}, {"layer.tar", layer}, {"manifest.json", manifest}} {
		if err := add(w, file.name, 0o644, file.content); err != nil {
			return nil, err
		}
	}
	return out.Bytes(), w.Close()
}

func add(w *tar.Writer, name string, mode int64, content []byte) error {
	if err := w.WriteHeader(&tar.Header{Name: name, Mode: mode, Size: int64(len(content))}); err != nil {
		return err
	}
	_, err := w.Write(content)
	return err
}
