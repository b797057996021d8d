package run_test

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/laxity/laxity/actuator/enforce/enforcetest/realdocker"
	"github.com/laxity/laxity/actuator/nodes"
	"github.com/laxity/laxity/actuator/placement/api"
	"github.com/laxity/laxity/internal/daemon"
	"github.com/laxity/laxity/internal/needtest"
)

// An engine on another machine, over TLS: a real dockerd that demands a
// certificate, on a network of its own, which docker is started in.
func TestAnEngineOverTLS(t *testing.T) {
	dir := t.TempDir()
	way := certificates(t, dir)
	way.Host = "tcp://127.0.0.1:2376"
	d := realdocker.NewDaemon(t, "--host="+way.Host, "--tlsverify", "--tlscacert="+way.CAFile, "--tlscert="+way.CertFile, "--tlskey="+way.KeyFile)
	in := fmt.Sprintf("nsenter --net=/proc/%d/ns/net ", d.PID())
	if out, err := exec.CommandContext(t.Context(), "sh", "-c", in+"ip link set lo up").CombinedOutput(); err != nil {
		needtest.Namespaces.Skipf(t, "its loopback cannot be used: %v: %s", err, out)
	}
	img := image(t)
	copyImage(t, img, d.Host)
	docker, err := exec.LookPath("docker")
	if err != nil {
		t.Fatal(err)
	}
	inPath(t, dir, "docker", "exec "+in+docker+` "$@"`)

	remote := func(way nodes.Docker) *actuator {
		return &actuator{next: []api.Placement{{ID: "p1", Node: "gpu-1", GPU: gpu, Simulated: true, Docker: way}}}
	}
	a := remote(way)
	if r := do(t, a, "--rm", "--network=none", img, "exit", "5"); r.code != 5 || r.err != nil || len(a.bound["p1"]) != 64 || len(a.released) != 1 {
		t.Errorf("%d, %v, bound %v, released %v: %s", r.code, r.err, a.bound, a.released, r)
	}
	// With a certificate that the engine does not know it refuses, and the place
	// is given back.
	if err := os.MkdirAll(filepath.Join(dir, "strange"), 0o700); err != nil {
		t.Fatal(err)
	}
	stranger := certificates(t, filepath.Join(dir, "strange"))
	stranger.Host, stranger.CAFile = way.Host, way.CAFile
	a = remote(stranger)
	if r := do(t, a, "--rm", "--network=none", img, "exit", "5"); r.code == 5 || len(a.bound) != 0 || len(a.released) != 1 {
		t.Errorf("a stranger: %d, bound %v, released %v: %s", r.code, a.bound, a.released, r)
	}
}

// The same over ssh, with a real ssh and sshd: docker's connection helper runs
// `docker system dial-stdio` at the other end.
func TestAnEngineOverSSH(t *testing.T) {
	if c, err := net.Dial("unix", socket); err != nil {
		needtest.Docker.Skipf(t, "needs a Docker engine at %s: %v", socket, err)
	} else {
		_ = c.Close()
	}
	img := image(t)
	dir := t.TempDir()
	port := sshd(t, dir)
	a := &actuator{next: []api.Placement{{ID: "p1", Node: "gpu-1", GPU: gpu, Simulated: true, Docker: nodes.Docker{Host: "ssh://root@127.0.0.1:" + port}}}}
	if r := do(t, a, "--rm", "--network=none", img, "exit", "5"); r.code != 5 || r.err != nil || len(a.bound["p1"]) != 64 || len(a.released) != 1 {
		t.Errorf("%d, %v, bound %v, released %v: %s", r.code, r.err, a.bound, a.released, r)
	}
	// A machine that does not answer: docker says so, and the place is given back. What else it
	// says depends on whether ssh has ended before docker writes to it.
	a = &actuator{next: []api.Placement{{ID: "p1", Node: "gpu-2", GPU: gpu, Simulated: true, Docker: nodes.Docker{Host: "ssh://root@127.0.0.1:1"}}}}
	if r := do(t, a, "--rm", "--network=none", img, "exit", "5"); r.code != 125 || len(a.bound) != 0 || len(a.released) != 1 || !strings.Contains(r.String(), "error during connect") {
		t.Errorf("nobody there: %d, bound %v, released %v: %s", r.code, a.bound, a.released, r)
	}
}

// copyImage takes the image to another engine.
func copyImage(t *testing.T, img, host string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), "sh", "-c", "docker save "+img+" | docker -H "+host+" load").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

// inPath puts a script before all programs of this name.
func inPath(t *testing.T, dir, name, script string) {
	t.Helper()
	bin := filepath.Join(dir, "bin")
	if err := os.MkdirAll(bin, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
}

// sshd starts an ssh server on the loopback that lets the test in, and makes ssh
// find it and its key; it returns the port.
func sshd(t *testing.T, dir string) (port string) {
	t.Helper()
	program, err := exec.LookPath("sshd")
	if err != nil {
		needtest.SSH.Skip(t, "no sshd here (Debian and Ubuntu: apt-get install openssh-server)")
	}
	ssh, err := exec.LookPath("ssh")
	if err != nil || os.Geteuid() != 0 {
		needtest.SSH.Skip(t, "needs ssh, and root for sshd")
	}
	for _, key := range []string{"host", "user"} {
		if out, err := exec.CommandContext(t.Context(), "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", filepath.Join(dir, key)).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	free, err := daemon.FreeAddresses(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ = net.SplitHostPort(free[0])
	if err := os.MkdirAll("/run/sshd", 0o755); err != nil { // sshd wants it
		t.Fatal(err)
	}
	config := filepath.Join(dir, "sshd_config")
	text := fmt.Sprintf("Port %s\nListenAddress 127.0.0.1\nHostKey %s/host\nAuthorizedKeysFile %s/user.pub\nStrictModes no\nUsePAM no\nPidFile none\nPermitRootLogin prohibit-password\n", port, dir, dir)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	log, err := os.Create(filepath.Join(dir, "sshd.log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	server := exec.Command(program, "-D", "-e", "-f", config)
	server.Stdout, server.Stderr = log, log
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = server.Process.Kill()
		_ = server.Wait()
		if b, _ := os.ReadFile(log.Name()); t.Failed() {
			t.Logf("sshd: %s", b)
		}
	})
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		if c, err := net.Dial("tcp", "127.0.0.1:"+port); err == nil {
			_ = c.Close()
			break
		}
		if time.Now().After(deadline) {
			b, _ := os.ReadFile(log.Name())
			needtest.SSH.Skipf(t, "sshd does not come up here: %s", b)
		}
	}
	inPath(t, dir, "ssh", fmt.Sprintf(`exec %s -F none -i %s/user -o IdentitiesOnly=yes -o BatchMode=yes -o StrictHostKeyChecking=no -o UserKnownHostsFile=%s/known "$@"`, ssh, dir, dir))
	return port
}
