package nodes_test

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/laxity/laxity/actuator/nodes"
)

func TestParse(t *testing.T) {
	list, err := nodes.Parse([]byte(`
- node: gpu-2
  exporter: http://gpu-2:9870/
  actuator: https://gpu-2:9871
  docker: {host: tcp://gpu-2:2376, ca_file: ca.pem, cert_file: cert.pem, key_file: /keys/key.pem}
  http_config: {basic_auth: {username: laxity, password: secret}}
- node: gpu-1
  docker: {context: one}
# as in Prometheus's file_sd
- targets: ['gpu-3:9871']
  labels: {node: gpu-3, __scheme__: https, docker_host: 'ssh://admin@gpu-3', rack: left}
`), "/etc/laxity")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, n := range list {
		names = append(names, n.Name)
	}
	if strings.Join(names, " ") != "gpu-1 gpu-2 gpu-3" {
		t.Errorf("names = %v", names)
	}
	two, ok := list.Find("gpu-2")
	want := nodes.Docker{Host: "tcp://gpu-2:2376", CAFile: "/etc/laxity/ca.pem", CertFile: "/etc/laxity/cert.pem", KeyFile: "/keys/key.pem"}
	if !ok || two.Exporter != "http://gpu-2:9870" || two.Actuator != "https://gpu-2:9871" || two.Docker != want || two.HTTP == nil {
		t.Errorf("gpu-2 = %+v", two)
	}
	if one, _ := list.Find("gpu-1"); one.Docker.Context != "one" || !one.Docker.Known() || one.HTTP != nil {
		t.Errorf("gpu-1 = %+v", one)
	}
	if three, _ := list.Find("gpu-3"); three.Actuator != "https://gpu-3:9871" || three.Docker.Host != "ssh://admin@gpu-3" {
		t.Errorf("gpu-3 = %+v", three)
	}
	if _, ok := list.Find("gpu-4"); ok {
		t.Error("found a node that is not there")
	}
	if empty, err := nodes.Parse(nil, ""); err != nil || len(empty) != 0 {
		t.Errorf("an empty file: %v, %v", empty, err)
	}
}

func TestParseFails(t *testing.T) {
	for says, text := range map[string]string{
		"list of":             `nodes: {}`,
		"has no node":         `[{exporter: "http://x:1"}]`,
		"listed twice":        `[{node: a}, {node: a}]`,
		"no address":          `[{node: a, exporter: "gpu-1:9870"}]`,
		"actuator":            `[{node: a, actuator: "ftp://gpu-1"}]`,
		"not found in type":   `[{node: a, dokcer: {}}]`,
		"host or context":     `[{node: a, docker: {host: "ssh://a", context: a}}]`,
		"no address of an en": `[{node: a, docker: {host: "gpu-1"}}]`,
		"TLS needs":           `[{node: a, docker: {host: "tcp://a:2376", ca_file: ca.pem}}]`,
		"either node":         `[{node: a, targets: ["a:1"]}]`,
		"one entry for each":  `[{targets: ["a:1", "b:1"], labels: {node: a}}]`,
		"at most one of":      `[{node: a, http_config: {basic_auth: {username: a}, authorization: {credentials: b}}}]`,
	} {
		if _, err := nodes.Parse([]byte(text), ""); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: error = %v, want one that says %q", text, err, says)
		}
	}
}

func TestFileKeepsTheOldListWhenTheNewOneIsBad(t *testing.T) {
	path := filepath.Join(t.TempDir(), "nodes.yaml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("[{node: a}]")
	f, err := nodes.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	write("[{node: b")
	if err := f.Reload(); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("error = %v", err)
	}
	if _, ok := f.Find("a"); !ok {
		t.Error("the old list is gone")
	}
	write("[{node: b}]")
	if err := f.Reload(); err != nil {
		t.Fatal(err)
	}
	if _, ok := f.Find("a"); ok || len(f.List()) != 1 {
		t.Errorf("list = %v", f.List())
	}
	if _, err := nodes.Open(filepath.Join(t.TempDir(), "absent")); err == nil {
		t.Error("an absent file was read")
	}
	if none, err := nodes.Open(""); err != nil || none.List() != nil || none.Reload() != nil {
		t.Errorf("no file: %v, %v", none, err)
	}
}

func TestClientAuthenticates(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if user, password, _ := r.BasicAuth(); user != "laxity" || password != "secret" {
			w.WriteHeader(http.StatusUnauthorized)
		}
	}))
	defer server.Close()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "secret"), []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	list, err := nodes.Parse([]byte(`[{node: a, http_config: {basic_auth: {username: laxity, password_file: secret}}}, {node: b}]`), dir)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []int{http.StatusOK, http.StatusUnauthorized} {
		c, err := list[i].Client()
		if err != nil {
			t.Fatal(err)
		}
		resp, err := c.Get(server.URL)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("%s: %s", list[i].Name, resp.Status)
		}
	}
}
