package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/goreleaser/nfpm/v2"
	_ "github.com/goreleaser/nfpm/v2/deb"
	_ "github.com/goreleaser/nfpm/v2/rpm"
)

// writePackages writes the .deb and the .rpm that package/nfpm.yaml describes.
func (r *release) writePackages(bin, arch string) error {
	version, err := packageVersion(r.version)
	if err != nil {
		return err
	}
	libc, err := libcVersion(bin)
	if err != nil {
		return err
	}
	values := map[string]string{"BIN": bin, "ARCH": arch, "VERSION": version, "GLIBC": libc}
	config, err := nfpm.ParseFileWithEnvMapping("package/nfpm.yaml", func(name string) string { return values[name] })
	if err != nil {
		return err
	}
	config.MTime = r.time
	names := map[string]string{
		"deb": fmt.Sprintf("laxity_%s_%s.deb", version, processors[arch].deb),
		"rpm": fmt.Sprintf("laxity-%s-1.%s.rpm", version, processors[arch].rpm),
	}
	for _, form := range []string{"deb", "rpm"} {
		if err := writePackage(config, form, filepath.Join(r.out, names[form])); err != nil {
			return fmt.Errorf("%s: %w", names[form], err)
		}
	}
	return nil
}

func writePackage(config nfpm.Config, form, file string) (err error) {
	info, err := config.Get(form)
	if err != nil {
		return err
	}
	info = nfpm.WithDefaults(info)
	if err := nfpm.PrepareForPackager(info, form); err != nil {
		return err
	}
	packager, err := nfpm.Get(form)
	if err != nil {
		return err
	}
	out, err := os.Create(file)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	return packager.Package(info, out)
}
