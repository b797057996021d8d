package main

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
)

// entry is one file of the archive.
type entry struct {
	name, source string
	mode         int64
}

// layout is what the archive holds beside the programs, by folder; the globs are those of the
// repository.
var layout = []struct{ folder, glob string }{
	{"", "LICENSE"}, {"", "README.md"}, {"", "CHANGELOG.md"},
	{"docs", "docs/*.md"}, {"docs/reference", "docs/reference/*.md"}, {"docs", "docs/*.svg"},
	{"man", "package/man/*.[18]"},
	{"completions/bash", "package/completions/bash/*"}, {"completions/zsh", "package/completions/zsh/*"}, {"completions/fish", "package/completions/fish/*"},
	{"systemd", "package/systemd/*"}, {"default", "package/default/*"}, {"examples", "package/examples/*"},
	{"rules", "rules/*.yml"}, {"dashboards", "dashboards/*.json"},
}

// entries lists the archive's files in the order of their names.
func entries(bin, bom string) ([]entry, error) {
	var list []entry
	for _, p := range programs {
		list = append(list, entry{path.Join("bin", p), filepath.Join(bin, p), 0o755})
	}
	list = append(list, entry{"sbom.cdx.json", bom, 0o644})
	for _, l := range layout {
		files, err := filepath.Glob(l.glob)
		if err != nil {
			return nil, err
		}
		if len(files) == 0 {
			return nil, fmt.Errorf("there is no %s: run this in the root of the repository", l.glob)
		}
		for _, f := range files {
			list = append(list, entry{path.Join(l.folder, filepath.Base(f)), f, 0o644})
		}
	}
	slices.SortFunc(list, func(a, b entry) int {
		if a.name < b.name {
			return -1
		}
		return 1
	})
	return list, nil
}

// writeArchive writes the tar.gz. Owner, time and order are always the same.
func (r *release) writeArchive(bin, arch, bom string) (err error) {
	list, err := entries(bin, bom)
	if err != nil {
		return err
	}
	out, err := os.Create(r.file(arch, ".tar.gz"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	packed, err := gzip.NewWriterLevel(out, gzip.DefaultCompression)
	if err != nil {
		return err
	}
	archive := tar.NewWriter(packed)
	for _, e := range list {
		if err := r.add(archive, path.Join(r.name(arch), e.name), e); err != nil {
			return err
		}
	}
	return errors.Join(archive.Close(), packed.Close())
}

func (r *release) add(archive *tar.Writer, name string, e entry) error {
	f, err := os.Open(e.source)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	header := &tar.Header{Typeflag: tar.TypeReg, Name: name, Size: info.Size(), Mode: e.mode, ModTime: r.time, Uname: "root", Gname: "root", Format: tar.FormatPAX}
	if err := archive.WriteHeader(header); err != nil {
		return err
	}
	_, err = io.Copy(archive, f)
	return err
}
