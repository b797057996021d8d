package engine_test

import (
	"cmp"
	"reflect"
	"slices"
	"testing"

	"github.com/laxity/laxity/internal/engine"
)

func TestResolve(t *testing.T) {
	const docker, podman, crio, ctrd, k3s = "/var/run/docker.sock", "/run/podman/podman.sock", "/var/run/crio/crio.sock", "/run/containerd/containerd.sock", "/run/k3s/containerd/containerd.sock"
	for name, tt := range map[string]struct {
		choice  engine.Choice
		env     map[string]string
		files   []string
		kind    string
		addr    string
		host    string
		crio    string
		silent  bool // a person decided
		context string
	}{
		"docker alone":                  {files: []string{docker}, kind: engine.Docker},
		"docker on its containerd":      {files: []string{docker, ctrd}, kind: engine.Docker},
		"containerd alone":              {files: []string{ctrd}, kind: engine.Containerd, addr: ctrd},
		"k3s":                           {files: []string{k3s}, kind: engine.Containerd, addr: k3s},
		"nothing":                       {kind: engine.Docker},
		"podman alone":                  {files: []string{podman}, kind: engine.Docker, host: "unix://" + podman},
		"podman beside docker":          {files: []string{podman, docker}, kind: engine.Docker},
		"podman beside containerd":      {files: []string{podman, ctrd}, kind: engine.Containerd, addr: ctrd},
		"DOCKER_HOST":                   {env: map[string]string{"DOCKER_HOST": "unix:///x"}, files: []string{podman, ctrd}, kind: engine.Docker, host: "unix:///x"},
		"--docker.host":                 {choice: engine.Choice{DockerHost: "unix:///x"}, files: []string{ctrd}, kind: engine.Docker},
		"--containerd.address":          {choice: engine.Choice{Address: "/x"}, files: []string{docker, ctrd}, kind: engine.Containerd, addr: "/x"},
		"CONTAINERD_ADDRESS":            {env: map[string]string{"CONTAINERD_ADDRESS": "/x"}, files: []string{docker}, kind: engine.Containerd, addr: "/x"},
		"chosen, though Docker is here": {choice: engine.Choice{Kind: engine.Containerd}, files: []string{docker, k3s}, kind: engine.Containerd, addr: k3s, silent: true},
		"chosen, and not here":          {choice: engine.Choice{Kind: engine.Containerd}, kind: engine.Containerd, addr: ctrd, silent: true},
		"CRI-O alone":                   {files: []string{crio}, kind: engine.CRIO, crio: crio},
		"CRI-O beside containerd":       {files: []string{crio, ctrd}, kind: engine.Containerd, addr: ctrd},
		"CRI-O beside podman":           {files: []string{crio, podman}, kind: engine.Docker, host: "unix://" + podman},
		"--crio.address":                {choice: engine.Choice{CRIOAddress: "/x"}, files: []string{docker, ctrd}, kind: engine.CRIO, crio: "/x"},
		"CRI-O chosen, and not here":    {choice: engine.Choice{Kind: engine.CRIO}, files: []string{docker}, kind: engine.CRIO, crio: crio, silent: true},
		"a docker context":              {context: "unix:///x", files: []string{docker, ctrd}, kind: engine.Docker, host: "unix:///x"},
		"DOCKER_HOST over a context":    {context: "unix:///x", env: map[string]string{"DOCKER_HOST": "unix:///y"}, kind: engine.Docker, host: "unix:///y"},
		"containerd over a context":     {context: "unix:///x", choice: engine.Choice{Kind: engine.Containerd}, kind: engine.Containerd, addr: ctrd, silent: true},
		"docker chosen":                 {choice: engine.Choice{Kind: engine.Docker}, files: []string{ctrd}, kind: engine.Docker, silent: true},
	} {
		t.Run(name, func(t *testing.T) {
			m := engine.Machine{
				Getenv:  func(name string) string { return tt.env[name] },
				Exists:  func(path string) bool { return slices.Contains(tt.files, path) },
				Context: func() string { return tt.context },
			}
			got, how := tt.choice.Resolve(m)
			if got.Kind != tt.kind || tt.addr != "" && got.Address != tt.addr || got.DockerHost != cmp.Or(tt.host, tt.choice.DockerHost) || got.CRIOAddress != tt.crio || (how == "") != tt.silent {
				t.Errorf("%+v (%s), want %s at %s", got, how, tt.kind, tt.addr)
			}
			if again, how := got.Resolve(m); again.Kind != got.Kind || again.Address != got.Address || again.CRIOAddress != got.CRIOAddress || how != "" {
				t.Errorf("decided again: %+v (%s)", again, how)
			}
		})
	}
}

// A container knows an engine by the path where its folder is mounted; outside of it that path is
// not there.
func TestHere(t *testing.T) {
	const docker, podman, crio, ctrd, k3s = "/var/run/docker.sock", "/run/podman/podman.sock", "/var/run/crio/crio.sock", "/run/containerd/containerd.sock", "/run/k3s/containerd/containerd.sock"
	mounted := engine.Choice{Kind: engine.Containerd, Address: "/run/engine/containerd.sock", Namespaces: []string{"k8s.io"}}
	at := func(address string) engine.Choice {
		return engine.Choice{Kind: engine.Containerd, Address: address, Namespaces: []string{"k8s.io"}}
	}
	host := func(address string) engine.Choice { return engine.Choice{Kind: engine.Docker, DockerHost: address} }
	for name, tt := range map[string]struct {
		choice engine.Choice
		files  []string
		want   engine.Choice
		why    string
	}{
		"it is here":                        {choice: mounted, files: []string{"/run/engine", "/run/engine/containerd.sock", ctrd}, want: mounted},
		"its engine restarts":               {choice: mounted, files: []string{"/run/engine", ctrd}, want: mounted},
		"a pod's":                           {choice: mounted, files: []string{docker, ctrd}, want: at(ctrd), why: "/run/engine/containerd.sock is not here, and " + ctrd + " is"},
		"a pod's of k3s":                    {choice: mounted, files: []string{k3s}, want: at(k3s), why: "/run/engine/containerd.sock is not here, and " + k3s + " is"},
		"a pod's, and nothing is here":      {choice: mounted, files: []string{docker}, want: mounted},
		"a pod's of CRI-O":                  {choice: engine.Choice{Kind: engine.CRIO, CRIOAddress: "/run/engine/crio.sock"}, files: []string{crio}, want: engine.Choice{Kind: engine.CRIO, CRIOAddress: crio}, why: "/run/engine/crio.sock is not here, and " + crio + " is"},
		"the stack's of Docker":             {choice: host("unix:///run/laxity-docker/docker.sock"), files: []string{docker, podman}, want: host("unix://" + docker), why: "/run/laxity-docker/docker.sock is not here, and " + docker + " is"},
		"a user's Podman":                   {choice: host("unix:///run/user/1/podman/podman.sock"), files: []string{docker, podman}, want: host("unix://" + podman), why: "/run/user/1/podman/podman.sock is not here, and " + podman + " is"},
		"Podman, and only Docker is here":   {choice: host("unix:///run/user/1/podman/podman.sock"), files: []string{docker}, want: host("unix:///run/user/1/podman/podman.sock")},
		"Docker of another machine":         {choice: host("tcp://10.0.0.1:2376"), files: []string{docker}, want: host("tcp://10.0.0.1:2376")},
		"Docker at the usual place, always": {choice: host(""), files: []string{podman}, want: host("")},
	} {
		t.Run(name, func(t *testing.T) {
			got, why := tt.choice.Here(engine.Machine{Exists: func(path string) bool { return slices.Contains(tt.files, path) }})
			if !reflect.DeepEqual(got, tt.want) || why != tt.why {
				t.Errorf("%+v (%q), want %+v (%q)", got, why, tt.want, tt.why)
			}
		})
	}
}

func TestGiven(t *testing.T) {
	for name, tt := range map[string]struct {
		choice engine.Choice
		env    map[string]string
		want   bool
	}{
		"nothing":              {},
		"--engine=auto":        {choice: engine.Choice{Kind: engine.Auto}},
		"--engine=crio":        {choice: engine.Choice{Kind: engine.CRIO}, want: true},
		"--docker.host":        {choice: engine.Choice{DockerHost: "unix:///x"}, want: true},
		"--containerd.address": {choice: engine.Choice{Address: "/x"}, want: true},
		"a namespace alone":    {choice: engine.Choice{Kind: engine.Auto, Namespaces: []string{"x"}}, want: true},
		"--crio.address":       {choice: engine.Choice{CRIOAddress: "/x"}, want: true},
		"DOCKER_HOST":          {env: map[string]string{"DOCKER_HOST": "unix:///x"}, want: true},
		"CONTAINERD_ADDRESS":   {env: map[string]string{"CONTAINERD_ADDRESS": "/x"}, want: true},
	} {
		if got := tt.choice.Given(engine.Machine{Getenv: func(name string) string { return tt.env[name] }}); got != tt.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestString(t *testing.T) {
	for want, c := range map[string]engine.Choice{
		"auto":                              {},
		"docker":                            {Kind: engine.Docker, Address: "/beneath"},
		"docker at unix:///x":               {Kind: engine.Docker, DockerHost: "unix:///x"},
		"containerd at /x, namespaces a, b": {Kind: engine.Containerd, Address: "/x", Namespaces: []string{"a", "b"}},
		"crio at " + engine.CRIOSocket:      {Kind: engine.CRIO, CRIOAddress: engine.CRIOSocket},
	} {
		if got := c.String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestFlags(t *testing.T) {
	c := engine.Choice{Kind: engine.Containerd, Address: "/x", Namespaces: []string{"a", "b"}, CRIOAddress: "/y"}
	want := []string{"--engine=containerd", "--containerd.address=/x", "--crio.address=/y", "--containerd.namespace=a", "--containerd.namespace=b"}
	if got := c.Flags(); !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if got := (engine.Choice{}).Flags(); len(got) > 0 {
		t.Errorf("of nothing: %v", got)
	}
}
