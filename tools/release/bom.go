package main

import (
	"debug/buildinfo"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/CycloneDX/cyclonedx-go"
)

// writeBOM lists the programs in bin and the modules in each, as the programs themselves say it,
// and returns the file's path.
func (r *release) writeBOM(bin, arch string) (file string, err error) {
	version, err := packageVersion(r.version)
	if err != nil {
		return "", err
	}
	parts := map[string]cyclonedx.Component{}
	var needs []cyclonedx.Dependency
	var apps []cyclonedx.Component
	for _, name := range programs {
		info, err := buildinfo.ReadFile(filepath.Join(bin, name))
		if err != nil {
			return "", err
		}
		app := cyclonedx.Component{BOMRef: name, Type: cyclonedx.ComponentTypeApplication, Name: name, Version: version}
		modules := append([]*debug.Module{{Path: "std", Version: info.GoVersion}}, info.Deps...)
		var refs []string
		for _, m := range modules {
			c, err := component(m)
			if err != nil {
				return "", fmt.Errorf("%s: %w", name, err)
			}
			parts[c.BOMRef] = c
			refs = append(refs, c.BOMRef)
		}
		slices.Sort(refs)
		apps, needs = append(apps, app), append(needs, cyclonedx.Dependency{Ref: name, Dependencies: &refs})
	}
	for _, c := range parts {
		apps = append(apps, c)
	}
	slices.SortStableFunc(apps[len(programs):], func(a, b cyclonedx.Component) int { return strings.Compare(a.BOMRef, b.BOMRef) })
	bom := cyclonedx.NewBOM()
	bom.Metadata = &cyclonedx.Metadata{
		Timestamp: r.time.Format("2006-01-02T15:04:05Z"),
		Component: &cyclonedx.Component{BOMRef: "release", Type: cyclonedx.ComponentTypeApplication, Name: r.name(arch), Version: version},
	}
	bom.Components = &apps
	refs := slices.Clone(programs)
	needs = append(needs, cyclonedx.Dependency{Ref: "release", Dependencies: &refs})
	bom.Dependencies = &needs
	file = r.file(arch, ".cdx.json")
	out, err := os.Create(file)
	if err != nil {
		return "", err
	}
	err = cyclonedx.NewBOMEncoder(out, cyclonedx.BOMFileFormatJSON).SetPretty(true).Encode(bom)
	return file, errors.Join(err, out.Close())
}

// component describes a module; what replaces it is what is in the program.
func component(m *debug.Module) (cyclonedx.Component, error) {
	if m.Replace != nil {
		m = m.Replace
	}
	purl := "pkg:golang/" + m.Path + "@" + m.Version
	c := cyclonedx.Component{BOMRef: purl, Type: cyclonedx.ComponentTypeLibrary, Name: m.Path, Version: m.Version, PackageURL: purl}
	if m.Sum != "" {
		sum, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(m.Sum, "h1:"))
		if err != nil {
			return c, fmt.Errorf("checksum of %s: %w", m.Path, err)
		}
		c.Hashes = &[]cyclonedx.Hash{{Algorithm: cyclonedx.HashAlgoSHA256, Value: hex.EncodeToString(sum)}}
	}
	return c, nil
}
