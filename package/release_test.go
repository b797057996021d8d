package package_test

import (
	"archive/tar"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/laxity/laxity/actuator/nodes"
)

// released: the archive has what the packages have, and the checksums and the list of parts are
// those of the files.
func released(t *testing.T, out string) {
	run(t, nil, "sh", "-c", "cd "+out+" && sha256sum --check --strict sha256sums")
	f, err := os.Open(only(t, filepath.Join(out, "*.tar.gz")))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	unpacked, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	var names strings.Builder
	for archive := tar.NewReader(unpacked); ; {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if h.ModTime.Unix() != 1700000000 || h.Uid != 0 || h.Gid != 0 {
			t.Errorf("%s: %v, owner %d:%d", h.Name, h.ModTime, h.Uid, h.Gid)
		}
		names.WriteString(h.Name + "\n")
	}
	for _, want := range []string{"bin/laxity-exporter", "man/laxity.1", "completions/zsh/_laxity", "systemd/laxity-guardian.service", "default/laxity-actuator",
		"examples/prometheus.yml", "rules/alerts.yml", "dashboards/node.json", "LICENSE", "sbom.cdx.json"} {
		if !regexp.MustCompile(`(?m)^laxity_1\.2\.3_linux_\w+/` + regexp.QuoteMeta(want) + `$`).MatchString(names.String()) {
			t.Errorf("no %s in the archive:\n%s", want, names.String())
		}
	}
	parts(t, out)
}

// parts: each program is listed with the modules that it was linked with.
func parts(t *testing.T, out string) {
	text, err := os.ReadFile(only(t, filepath.Join(out, "*.cdx.json")))
	if err != nil {
		t.Fatal(err)
	}
	var bom struct {
		BOMFormat  string `json:"bomFormat"`
		Components []struct {
			Name, Version, PURL string
			Hashes              []struct{ Alg, Content string }
		}
		Dependencies []struct {
			Ref       string
			DependsOn []string `json:"dependsOn"`
		}
	}
	if err := json.Unmarshal(text, &bom); err != nil || bom.BOMFormat != "CycloneDX" {
		t.Fatal(err, bom.BOMFormat)
	}
	needs, hashed := map[string]int{}, 0
	for _, d := range bom.Dependencies {
		needs[d.Ref] = len(d.DependsOn)
	}
	for _, c := range bom.Components {
		hashed += len(c.Hashes)
	}
	if needs["laxity"] < needs["laxity-exporter"] || needs["laxity-exporter"] < 20 || needs["laxity-actuator"] < 20 || needs["release"] != 3 || hashed < needs["laxity"]-3 {
		t.Errorf("modules of each: %v, with a checksum: %d", needs, hashed)
	}
	if regexp.MustCompile(`"(name|purl)": "[^"]*(/tmp|/root)`).Match(text) {
		t.Error("it names a folder of this machine")
	}
}

// sameInRPM: it has the same files as the Debian package, but where distributions keep
// completions of zsh.
func sameInRPM(t *testing.T, out string) {
	rpm := need(t, "rpm", "Debian and Ubuntu: apt-get install rpm")
	list := func(text string, pattern *regexp.Regexp) string {
		var paths []string
		for _, m := range pattern.FindAllStringSubmatch(text, -1) {
			paths = append(paths, strings.Replace(m[1], "/usr/share/zsh/site-functions/", "/usr/share/zsh/vendor-completions/", 1))
		}
		return strings.Join(paths, "\n")
	}
	file := only(t, filepath.Join(out, "*.rpm"))
	deb := list(run(t, nil, "dpkg-deb", "--contents", debOf(t, out)), regexp.MustCompile(`(?m)^[-l].* \./*(/\S*[^/\s])(?: -> .*)?$`))
	got := list(run(t, nil, rpm, "--query", "--package", "--queryformat=[%{FILEMODES:perms} %{FILENAMES}\n]", file), regexp.MustCompile(`(?m)^[-l]\S+ (/\S+)$`))
	if got == "" || sorted(got) != sorted(strings.ReplaceAll(deb, "\n./", "\n/")) {
		t.Errorf("the RPM package has\n%s\nand the Debian one\n%s", sorted(got), sorted(deb))
	}
	info := run(t, nil, rpm, "--query", "--package", "--queryformat=%{NAME} %{VERSION}-%{RELEASE} %{BUILDHOST}\n[%{REQUIRENAME} %{REQUIREFLAGS:depflags} %{REQUIREVERSION}\n]", file)
	if !strings.HasPrefix(info, "laxity 1.2.3-1 release\n") || !regexp.MustCompile(`(?m)^glibc >= 2\.\d+$`).MatchString(info) {
		t.Error(info)
	}
}

func sorted(text string) string {
	return strings.Join(slices.Sorted(slices.Values(strings.Split(text, "\n"))), "\n")
}

// TestReproducible: the same programs packed twice are the same bytes, wherever. make dist-twice
// shows the same of what compiler and linker do, which takes minutes.
func TestReproducible(t *testing.T) {
	if testing.Short() {
		t.Skip("builds programs; not with -short")
	}
	release(t)
	var sums [2]string
	for i := range sums {
		bin := t.TempDir()
		// Linked each time.
		run(t, nil, "go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", bin+"/", "./cmd/laxity-exporter")
		for _, name := range []string{"laxity", "laxity-actuator"} { // any program does
			run(t, nil, "cp", filepath.Join(bin, "laxity-exporter"), filepath.Join(bin, name))
		}
		text, err := os.ReadFile(filepath.Join(pack(t, bin, "v0.2.0-rc1-3-gabc1234"), "sha256sums"))
		if err != nil {
			t.Fatal(err)
		}
		sums[i] = string(text)
	}
	if sums[0] != sums[1] {
		t.Errorf("two releases of one commit differ:\n%s\n%s", sums[0], sums[1])
	}
}

// history is versions as git describe prints them, in the order in which they came to be.
var history = []string{
	"v0.0.0-9-gfffffff", "v0.0.0-10-gaaaaaaa", "v0.1.0-rc1", "v0.1.0", "v0.1.0-dirty", "v0.1.0-5-gabc1234", "v0.1.0-5-gabc1234-dirty", "v0.1.0-12-g0123456",
	"v0.2.0-alpha.1", "v0.2.0-rc1", "v0.2.0-rc1-3-gdef5678", "v0.2.0-rc2", "v0.2.0-rc10", "v0.2.0", "v0.10.0", "v1.0.0",
}

// TestVersionsSort: dpkg and rpm sort the packages' versions as history is.
func TestVersionsSort(t *testing.T) {
	program := release(t)
	dpkg, rpm := need(t, "dpkg", "a Debian or Ubuntu is needed"), need(t, "rpm", "Debian and Ubuntu: apt-get install rpm")
	var versions []string
	for _, v := range history {
		versions = append(versions, strings.TrimSpace(run(t, nil, program, "--version="+v, "--print-version")))
	}
	t.Log(versions)
	for i, older := range versions[:len(versions)-1] {
		newer := versions[i+1]
		run(t, nil, dpkg, "--compare-versions", older, "lt", newer)
		run(t, nil, dpkg, "--validate-version", newer)
		if got := strings.TrimSpace(run(t, nil, rpm, "--eval", `%{lua:print(rpm.vercmp("`+older+`-1", "`+newer+`-1"))}`)); got != "-1" {
			t.Errorf("rpm compares %s with %s: %s", older, newer, got)
		}
	}
}

// TestExamples: the programs that the examples are for accept them. That of the actuator is read
// in cmd/laxity-actuator.
func TestExamples(t *testing.T) {
	list, err := nodes.Read("examples/nodes.yaml")
	if err != nil || len(list) != 2 || !list[0].Docker.Known() {
		t.Errorf("%+v %v", list, err)
	}
	amtool, promtool := needPrometheus(t, "amtool"), needPrometheus(t, "promtool")
	run(t, nil, amtool, "check-config", "package/examples/alertmanager.yml")
	dir := t.TempDir()
	text, err := os.ReadFile("examples/prometheus.yml")
	if err != nil {
		t.Fatal(err)
	}
	rules, err := filepath.Abs("../rules")
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(dir, "prometheus.yml"), strings.ReplaceAll(string(text), "/usr/share/laxity/rules", rules))
	run(t, nil, promtool, "check", "config", filepath.Join(dir, "prometheus.yml"))
}
