// Package nodes reads nodes.yaml: for each node the address of its exporter, of
// its actuator and of its Docker engine. Placement reads it to know where to
// create a container, forwarding to know who acts on a node.
//
// It imports the standard library, go.yaml.in/yaml and prometheus/common. The HTTP client
// configuration is the latter's, so that authentication and TLS are written as in Prometheus.
package nodes

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/prometheus/common/config"
	"go.yaml.in/yaml/v3"
)

// Node is one node. An empty address is not known.
type Node struct {
	// Name is the target label `node` of its metrics and alerts.
	Name string
	// Exporter and Actuator are base URLs, without a slash at the end.
	Exporter, Actuator string
	Docker             Docker
	// HTTP is how to authenticate to its exporter and actuator; nil is not at all.
	HTTP *config.HTTPClientConfig
}

// Docker says how the Docker engine of a node is reached: by address or by the
// name of a Docker context. The zero value is not known.
type Docker struct {
	// Host is as in DOCKER_HOST: unix://, tcp:// or ssh://.
	Host string `yaml:"host" json:"host,omitempty"`
	// Context is the name of a Docker context on the machine that connects.
	Context string `yaml:"context" json:"context,omitempty"`
	// CAFile, CertFile and KeyFile are for tcp:// over TLS; all three or none.
	CAFile   string `yaml:"ca_file" json:"ca_file,omitempty"`
	CertFile string `yaml:"cert_file" json:"cert_file,omitempty"`
	KeyFile  string `yaml:"key_file" json:"key_file,omitempty"`
}

// Known reports whether there is a way to the engine.
func (d Docker) Known() bool { return d.Host != "" || d.Context != "" }

// Client returns an HTTP client for the node's exporter and actuator. It has no
// overall timeout.
func (n Node) Client() (*http.Client, error) {
	if n.HTTP == nil {
		return &http.Client{}, nil
	}
	c, err := config.NewClientFromConfig(*n.HTTP, "laxity-"+n.Name)
	if err != nil {
		return nil, fmt.Errorf("http_config of node %s: %w", n.Name, err)
	}
	return c, nil
}

// List holds the nodes by name, each once.
type List []Node

// Find returns the node with this name.
func (l List) Find(name string) (Node, bool) {
	i, ok := slices.BinarySearchFunc(l, name, func(n Node, name string) int { return strings.Compare(n.Name, name) })
	if !ok {
		return Node{}, false
	}
	return l[i], true
}

// entry is one item of the file: either a node, or a group of Prometheus's
// file_sd format.
type entry struct {
	Node     string                   `yaml:"node"`
	Exporter string                   `yaml:"exporter"`
	Actuator string                   `yaml:"actuator"`
	Docker   Docker                   `yaml:"docker"`
	HTTP     *config.HTTPClientConfig `yaml:"http_config"`

	Targets []string          `yaml:"targets"`
	Labels  map[string]string `yaml:"labels"`
}

// Read reads the file. Relative paths in it are relative to its folder.
func Read(path string) (List, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("nodes: %w", err)
	}
	l, err := Parse(raw, filepath.Dir(path))
	if err != nil {
		return nil, fmt.Errorf("nodes: %s: %w", path, err)
	}
	return l, nil
}

// Parse reads a list of nodes:
//
//   - node: gpu-1
//     exporter: http://gpu-1:9870
//     actuator: https://gpu-1:9871
//     docker: {host: ssh://admin@gpu-1}     # or {context: gpu-1}, or tcp:// with ca_file, cert_file, key_file
//     http_config: {basic_auth: {username: laxity, password_file: secret}}
//
// An entry may also be a group of Prometheus's file_sd format, whose targets are
// the addresses of actuators and whose labels hold `node`, and may hold
// `__scheme__`, `exporter`, `docker_host` and `docker_context`: so one file can
// serve Prometheus and the actuator.
func Parse(raw []byte, dir string) (List, error) {
	dec := yaml.NewDecoder(bytes.NewReader(raw))
	dec.KnownFields(true)
	var entries []entry
	if err := dec.Decode(&entries); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%w; write a list of {node, exporter, actuator, docker: {host or context}}", err)
	}
	var list List
	for i, e := range entries {
		n, err := e.node(dir)
		if err != nil {
			return nil, fmt.Errorf("entry %d: %w", i+1, err)
		}
		list = append(list, n)
	}
	slices.SortFunc(list, func(a, b Node) int { return strings.Compare(a.Name, b.Name) })
	for i := 1; i < len(list); i++ {
		if list[i].Name == list[i-1].Name {
			return nil, fmt.Errorf("node %s is listed twice", list[i].Name)
		}
	}
	return list, nil
}

func (e entry) node(dir string) (Node, error) {
	if len(e.Targets) > 0 || len(e.Labels) > 0 {
		if e.Node != "" || e.Actuator != "" || e.Exporter != "" || e.Docker != (Docker{}) {
			return Node{}, errors.New("write either node, exporter, actuator and docker, or targets and labels")
		}
		if len(e.Targets) != 1 {
			return Node{}, fmt.Errorf("%d targets: write one entry for each node, with its label node", len(e.Targets))
		}
		scheme := e.Labels["__scheme__"]
		if scheme == "" {
			scheme = "http"
		}
		e.Node, e.Actuator, e.Exporter = e.Labels["node"], scheme+"://"+e.Targets[0], e.Labels["exporter"]
		e.Docker = Docker{Host: e.Labels["docker_host"], Context: e.Labels["docker_context"]}
	}
	if e.Node == "" {
		return Node{}, errors.New("it has no node (its name, as the label `node` in metrics and alerts)")
	}
	n := Node{Name: e.Node, Docker: e.Docker, HTTP: e.HTTP}
	var err error
	if n.Exporter, err = base(e.Exporter, "exporter"); err != nil {
		return Node{}, fmt.Errorf("node %s: %w", e.Node, err)
	}
	if n.Actuator, err = base(e.Actuator, "actuator"); err != nil {
		return Node{}, fmt.Errorf("node %s: %w", e.Node, err)
	}
	if err := n.Docker.complete(dir); err != nil {
		return Node{}, fmt.Errorf("node %s: %w", e.Node, err)
	}
	if n.HTTP != nil {
		n.HTTP.SetDirectory(dir)
		if err := n.HTTP.Validate(); err != nil {
			return Node{}, fmt.Errorf("node %s: http_config: %w", e.Node, err)
		}
	}
	return n, nil
}

// base checks a base URL.
func base(address, what string) (string, error) {
	if address == "" {
		return "", nil
	}
	u, err := url.Parse(address)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		return "", fmt.Errorf("%s %q is no address: write one like http://gpu-1:9870", what, address)
	}
	return strings.TrimRight(address, "/"), nil
}

// complete checks the engine's address and makes its paths absolute.
func (d *Docker) complete(dir string) error {
	if d.Host != "" && d.Context != "" {
		return errors.New("docker: write host or context, not both")
	}
	if d.Host != "" {
		u, err := url.Parse(d.Host)
		if err != nil || !slices.Contains([]string{"unix", "tcp", "ssh"}, u.Scheme) || (u.Host == "" && u.Path == "") {
			return fmt.Errorf("docker host %q is no address of an engine: write unix:///var/run/docker.sock, tcp://gpu-1:2376 or ssh://user@gpu-1", d.Host)
		}
	}
	files := []*string{&d.CAFile, &d.CertFile, &d.KeyFile}
	set := 0
	for _, f := range files {
		if *f == "" {
			continue
		}
		set++
		if !filepath.IsAbs(*f) {
			*f = filepath.Join(dir, *f)
		}
	}
	if set > 0 && (set < len(files) || !strings.HasPrefix(d.Host, "tcp://")) {
		return errors.New("docker: TLS needs ca_file, cert_file and key_file, and a tcp:// host")
	}
	return nil
}
