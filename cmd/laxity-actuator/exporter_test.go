package main

import (
	"bufio"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/laxity/laxity/internal/listener"
	"github.com/laxity/laxity/internal/needtest"
)

const strangersVariable = "LAXITY_TEST_STRANGER"

// TestStranger is no test: it is the program of another user who has taken the exporter's port.
func TestStranger(_ *testing.T) {
	if os.Getenv(strangersVariable) == "" {
		return
	}
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		fmt.Println("was sent", r.Header.Get("Authorization"))
	}))
	fmt.Println(server.URL)
	_, _ = os.Stdin.Read(make([]byte, 1)) // until the test ends
	server.Close()
}

// While the exporter is down any user may take its port. What is there is asked nothing, and told no token.
func TestStrangerOnTheExportersPortIsNotAsked(t *testing.T) {
	if os.Geteuid() != 0 {
		needtest.Root.Skip(t, "it runs a program as another user")
	}
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte(strings.Repeat("t", 40)), 0o600); err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	copied := filepath.Join(t.TempDir(), "stranger") // where the other user may read it
	for dir := filepath.Dir(copied); strings.HasPrefix(dir, os.TempDir()+"/"); dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(copied, program, 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(copied, "-test.run=^TestStranger$")
	cmd.Dir, cmd.Env = "/", append(os.Environ(), strangersVariable+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	said := bufio.NewReader(stdout)
	url, err := said.ReadString('\n')
	if err != nil {
		t.Fatal(url, err)
	}
	for name, s := range map[string]*serveCommand{
		"without a token": {},
		"with a token":    {exporterToken: token},
		"by a file":       {exporterConfig: write(t, "authorization: {credentials_file: "+token+"}\n")},
	} {
		client, err := s.exporterClient()
		if err != nil {
			t.Fatal(err)
		}
		resp, err := client.Get(strings.TrimSpace(url))
		if stranger := (*listener.StrangerError)(nil); !errors.As(err, &stranger) {
			t.Errorf("%s: %v", name, err)
			if err == nil {
				_ = resp.Body.Close()
			}
		}
	}
	_ = stdin.Close()
	if line, _ := said.ReadString('\n'); strings.Contains(line, "was sent") {
		t.Errorf("the stranger %s", line)
	}
	_ = cmd.Wait()
}
