// Package package_test checks the Debian package: what is in it, that it can be
// installed, removed and purged, and that systemd accepts its units.
package package_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/laxity/laxity/internal/needtest"
)

// need returns the program's path, or skips the test with the reason.
func need(t *testing.T, name, how string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		needtest.Packages.Skipf(t, "%s is not here (%s)", name, how)
	}
	return path
}

func run(t *testing.T, env []string, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir, cmd.Env = "..", append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// release is the program behind make dist.
func release(t *testing.T) string {
	t.Helper()
	path, err := filepath.Abs("../.tools/release")
	if err != nil {
		t.Fatal(err)
	}
	return need(t, path, "make .tools/release builds it")
}

// build makes the programs and packs them.
func build(t *testing.T, version string) (out string) {
	t.Helper()
	if testing.Short() {
		t.Skip("builds the programs; not with -short")
	}
	release(t)
	need(t, "dpkg-deb", "a Debian or Ubuntu is needed")
	bin := t.TempDir()
	run(t, nil, "go", "build", "-trimpath", "-ldflags=-s -w -X github.com/prometheus/common/version.Version="+version, "-o", bin+"/", "./cmd/laxity", "./cmd/laxity-exporter", "./cmd/laxity-actuator")
	return pack(t, bin, version)
}

// pack makes the release of programs, and returns its folder.
func pack(t *testing.T, bin, version string) (out string) {
	t.Helper()
	out = filepath.Join(t.TempDir(), "dist")
	run(t, nil, release(t), "--bin="+bin, "--version="+version, "--epoch=1700000000", "--out="+out)
	return out
}

func debOf(t *testing.T, out string) string { return only(t, filepath.Join(out, "*.deb")) }

// only is the one file that matches.
func only(t *testing.T, pattern string) string {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) != 1 {
		t.Fatalf("%s: %v %v", pattern, files, err)
	}
	return files[0]
}

func TestPackage(t *testing.T) {
	out := build(t, "v1.2.3")
	deb := debOf(t, out)
	t.Run("contents", func(t *testing.T) { contents(t, deb) })
	t.Run("archive, checksums and parts", func(t *testing.T) { released(t, out) })
	t.Run("rpm", func(t *testing.T) { sameInRPM(t, out) })
	t.Run("install, remove, purge", func(t *testing.T) { install(t, deb) })
	t.Run("units", func(t *testing.T) { units(t, deb) })
}

func contents(t *testing.T, deb string) {
	list := run(t, nil, "dpkg-deb", "--contents", deb)
	for _, want := range []string{
		`-rwxr-xr-x root/root .* \./usr/bin/laxity\n`, `-rwxr-xr-x root/root .* \./usr/bin/laxity-exporter\n`, `-rwxr-xr-x root/root .* \./usr/bin/laxity-actuator\n`,
		` \./usr/libexec/docker/cli-plugins/docker-laxity -> /usr/bin/laxity\n`,
		`-rw-r--r-- root/root .* \./usr/lib/systemd/system/laxity-guardian\.service\n`,
		`-rw-r--r-- root/root .* \./usr/lib/systemd/system/laxity-devices\.service\n`, ` \./usr/share/laxity/systemd/before-linux-6\.10\.conf\n`,
		`-rw-r--r-- root/root .* \./usr/share/laxity/rules/alerts\.yml\n`, `\./usr/share/laxity/dashboards/fleet\.json\n`, `\./usr/share/doc/laxity/copyright\n`,
		`\./usr/share/man/man1/laxity\.1\n`, `\./usr/share/man/man8/laxity-actuator\.8\n`, `\./usr/share/doc/laxity/examples/actuator\.yaml\n`,
		`\./usr/share/bash-completion/completions/laxity\n`, `\./usr/share/zsh/vendor-completions/_laxity-exporter\n`, `\./usr/share/fish/vendor_completions\.d/laxity\.fish\n`,
	} {
		if !regexp.MustCompile(want).MatchString(list) {
			t.Errorf("no %s in\n%s", want, list)
		}
	}
	if regexp.MustCompile(`_test|/tests/|/laxity-bench\n|\.go\n`).MatchString(list) {
		t.Errorf("what is not to be installed is in it:\n%s", list)
	}
	if fields := run(t, nil, "dpkg-deb", "--field", deb, "Package", "Version", "Architecture"); !strings.Contains(fields, "Package: laxity\nVersion: 1.2.3\n") {
		t.Error(fields)
	}
	if depends := run(t, nil, "dpkg-deb", "--field", deb, "Depends"); !regexp.MustCompile(`^libc6 \(>= 2\.\d+\)\n$`).MatchString(depends) {
		t.Errorf("it depends on %q: want the glibc whose symbols the programs import", depends)
	}
}

// install goes through a package's life below another root, with its scripts.
func install(t *testing.T, deb string) {
	if os.Geteuid() != 0 {
		needtest.Root.Skip(t, "dpkg below another root needs root")
	}
	root := t.TempDir()
	admin := filepath.Join(root, "var/lib/dpkg")
	if err := os.MkdirAll(filepath.Join(admin, "info"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(admin, "updates"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"status", "available"} {
		if err := os.WriteFile(filepath.Join(admin, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	dpkg := func(args ...string) string {
		t.Helper()
		return run(t, nil, "dpkg", append([]string{"--root=" + root, "--force-script-chrootless", "--force-depends", "--log=/dev/null"}, args...)...)
	}
	token := filepath.Join(root, "etc/laxity/webhook-token")
	options := filepath.Join(root, "etc/default/laxity-actuator")

	if out := dpkg("--install", deb); !strings.Contains(out, "systemctl enable --now") {
		t.Errorf("does not say what to do next: %s", out)
	}
	first, err := os.ReadFile(token)
	if i, serr := os.Stat(token); err != nil || serr != nil || i.Mode().Perm() != 0o640 || len(first) < 64 {
		t.Errorf("token: %v %v %d bytes", err, i, len(first))
	}
	if err := os.WriteFile(options, []byte("LAXITY_ACTUATOR_OPTS=--policy=fifo\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	dpkg("--install", deb) // an upgrade
	if again, err := os.ReadFile(token); err != nil || string(again) != string(first) {
		t.Error("an upgrade changed the token")
	}
	if o, err := os.ReadFile(options); err != nil || !strings.Contains(string(o), "fifo") {
		t.Error("an upgrade changed the options")
	}
	dpkg("--remove", "laxity")
	if _, err := os.Stat(filepath.Join(root, "usr/bin/laxity")); !os.IsNotExist(err) {
		t.Error("programs stay")
	}
	if _, err := os.Stat(token); err != nil {
		t.Error("the token did not survive a removal:", err)
	}
	dropIn := filepath.Join(root, "etc/systemd/system/laxity-guardian.service.d/rootless-podman.conf")
	writeFile(t, dropIn, "[Service]\n")
	dpkg("--purge", "laxity")
	for _, gone := range []string{token, options, filepath.Dir(dropIn)} {
		if _, err := os.Stat(gone); !os.IsNotExist(err) {
			t.Errorf("%s is left after a purge", gone)
		}
	}
}

var shipped = []string{"laxity-devices.service", "laxity-exporter.service", "laxity-guardian.service", "laxity-actuator.service"}

// units: systemd accepts them, and finds little to complain about.
func units(t *testing.T, deb string) {
	analyze := need(t, "systemd-analyze", "systemd is needed")
	root := t.TempDir()
	run(t, nil, "dpkg-deb", "--extract", deb, root)
	folder := filepath.Join(root, "usr/lib/systemd/system")
	// NVIDIA's, which systemd wants to see.
	if err := os.WriteFile(filepath.Join(root, "usr/bin/nvidia-modprobe"), []byte("#!/bin/sh\n"), 0o700); err != nil { //nolint:gosec // a program
		t.Fatal(err)
	}
	for _, unit := range shipped {
		path := filepath.Join(folder, unit)
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		// Its programs and its neighbours lie below the root.
		text = []byte(strings.ReplaceAll(string(text), "=/usr/bin/", "="+root+"/usr/bin/"))
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	env := []string{"SYSTEMD_UNIT_PATH=" + folder + ":/usr/lib/systemd/system:/lib/systemd/system"}
	for _, unit := range shipped {
		out := run(t, env, analyze, "verify", "--man=no", filepath.Join(folder, unit))
		for line := range strings.Lines(out) {
			if strings.Contains(line, "laxity") {
				t.Errorf("%s: %s", unit, line)
			}
		}
	}
	// What systemd counts as exposed: it may become less.
	for unit, most := range map[string]string{"laxity-exporter.service": "32", "laxity-actuator.service": "35", "laxity-guardian.service": "28"} {
		t.Log(lastLine(run(t, env, analyze, "security", "--offline=yes", "--threshold="+most, "--no-pager", filepath.Join(folder, unit))))
	}
}

func lastLine(text string) string {
	lines := slices.DeleteFunc(strings.Split(text, "\n"), func(l string) bool { return strings.TrimSpace(l) == "" })
	return lines[len(lines)-1]
}

func needPrometheus(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		needtest.Prometheus.Skipf(t, "%s is not here (Debian and Ubuntu: apt-get install prometheus prometheus-alertmanager)", name)
	}
	return path
}
