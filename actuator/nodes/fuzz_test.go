package nodes_test

import (
	"net/url"
	"testing"

	"github.com/laxity/laxity/actuator/nodes"
)

// Whatever stands in nodes.yaml is refused, or a list in which each name is there
// once, is found, and has addresses that can be asked.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		"", "[]", "- {}", "- node: a", "- {node: a, exporter: 'http://a:9870', actuator: 'https://a:9871', docker: {host: 'ssh://admin@a'}}",
		"- {node: a, docker: {context: gpu-1}, http_config: {basic_auth: {username: laxity, password_file: secret}}}",
		"- {node: a, docker: {host: 'tcp://a:2376', ca_file: ca, cert_file: c, key_file: k}}",
		"- targets: ['b:9871']\n  labels: {node: b, __scheme__: https, docker_host: 'unix:///run/d.sock'}",
		"- {node: a}\n- {node: a}", "- {node: a, exporter: 'ftp://x'}", "- &a {node: a}\n- *a", "a: b", "- [", "\x00", "- {node: \"\\e[2J\"}",
		"- {node: a, http_config: {bearer_token: x, basic_auth: {username: y}}}",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		list, err := nodes.Parse(raw, "/dir")
		if err != nil {
			return
		}
		seen := map[string]bool{}
		for _, n := range list {
			if n.Name == "" || seen[n.Name] {
				t.Errorf("name %q is empty or there twice", n.Name)
			}
			seen[n.Name] = true
			if found, ok := list.Find(n.Name); !ok || found.Name != n.Name {
				t.Errorf("%q is not found", n.Name)
			}
			for _, address := range []string{n.Exporter, n.Actuator} {
				if u, err := url.Parse(address); address != "" && (err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https") {
					t.Errorf("%q is no address", address)
				}
			}
			if n.Docker.Host != "" && n.Docker.Context != "" {
				t.Error("two engines")
			}
		}
	})
}
