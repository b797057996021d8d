// Package engine says which container engine of this machine is used: Docker (or what speaks its
// API), containerd, or CRI-O. Exporter, actuator and guardian decide it in the same way.
// Package internal/enginekind tells Docker from Podman.
//
// It imports internal/ctrd and the standard library.
package engine

import (
	"cmp"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/laxity/laxity/internal/ctrd"
)

// The engines, as in --engine.
const (
	Auto       = "auto"
	Docker     = "docker"
	Containerd = "containerd"
	CRIO       = "crio"
)

// Kinds lists them.
var Kinds = []string{Auto, Docker, Containerd, CRIO}

// Choice is what a person chose. The zero value is Auto.
type Choice struct {
	Kind string `json:"kind,omitempty"` // Auto if empty
	// DockerHost is Docker's address; empty: DOCKER_HOST, else the docker context's in use, else the usual socket.
	DockerHost string `json:"docker_host,omitempty"`
	// Address is containerd's socket; empty: CONTAINERD_ADDRESS, else the first of Sockets that is
	// there.
	Address string `json:"containerd_address,omitempty"`
	// Namespaces are those of containerd to use; empty: all but Docker's.
	Namespaces []string `json:"containerd_namespaces,omitempty"`
	// CRIOAddress is CRI-O's socket; empty: the usual one. Any engine that serves the CRI will do.
	CRIOAddress string `json:"crio_address,omitempty"`
}

// Sockets are where containerd listens: by itself, in k3s and RKE2, in MicroK8s.
var Sockets = []string{"/run/containerd/containerd.sock", "/run/k3s/containerd/containerd.sock", "/var/snap/microk8s/common/run/containerd.sock"}

// CRIOSocket is where CRI-O listens unless it is told otherwise.
const CRIOSocket = "/var/run/crio/crio.sock"

// Where Docker and Podman listen unless they are told otherwise.
const (
	dockerSocket = "/var/run/docker.sock"
	podmanSocket = "/run/podman/podman.sock"
)

// Machine is what Resolve looks at.
type Machine struct {
	Getenv func(string) string
	Exists func(path string) bool
	// Context is the address of the docker context in use; "" for the usual one.
	Context func() string
}

// This is this machine.
var This = Machine{Getenv: os.Getenv, Context: contextSocket, Exists: func(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}}

// Resolve returns the choice with the engine decided, and how it was decided; "" where the person
// did. Of several engines that are there Docker is taken, since containerd is beneath it on every
// machine with Docker; then containerd; then Podman, which speaks Docker's API; then CRI-O, beside
// which Podman may be there for people.
func (c Choice) Resolve(m Machine) (decided Choice, how string) {
	if c.Kind == "" || c.Kind == Auto {
		if c.Kind, how = c.auto(m); how == podmanIsThere {
			c.DockerHost = "unix://" + podmanSocket
		}
	}
	if c.Kind == Docker {
		c.DockerHost = cmp.Or(c.DockerHost, m.Getenv("DOCKER_HOST"), m.context())
	}
	if c.Kind == Containerd {
		c.Address = cmp.Or(c.Address, m.Getenv("CONTAINERD_ADDRESS"), m.socket(), Sockets[0])
	}
	if c.Kind == CRIO {
		c.CRIOAddress = cmp.Or(c.CRIOAddress, CRIOSocket)
	}
	return c, how
}

const podmanIsThere = podmanSocket + " is there, and no other engine's socket"

func (c Choice) auto(m Machine) (kind, how string) {
	socket, docker := m.socket(), m.Exists(dockerSocket)
	switch {
	case c.DockerHost != "" || m.Getenv("DOCKER_HOST") != "":
		return Docker, "its address is given (--docker.host, DOCKER_HOST)"
	case c.Address != "" || m.Getenv("CONTAINERD_ADDRESS") != "":
		return Containerd, "its address is given (--containerd.address, CONTAINERD_ADDRESS)"
	case c.CRIOAddress != "":
		return CRIO, "its address is given (--crio.address)"
	case m.context() != "":
		return Docker, "the docker context in use says so (DOCKER_CONTEXT, docker context use)"
	case docker && socket != "":
		return Docker, dockerSocket + " is there; containers of containerd at " + socket + " that are not Docker's, such as pods, are seen with --engine=containerd"
	case docker:
		return Docker, dockerSocket + " is there"
	case socket != "":
		return Containerd, socket + " is there, and " + dockerSocket + " is not"
	case m.Exists(podmanSocket):
		return Docker, podmanIsThere
	case m.Exists(CRIOSocket):
		return CRIO, CRIOSocket + " is there, and no other engine's socket"
	default:
		return Docker, "neither " + dockerSocket + ", " + podmanSocket + ", " + CRIOSocket + " nor a socket of containerd is there (" + strings.Join(Sockets, ", ") + ")"
	}
}

// context is the address of the docker context in use; "" for the usual one.
func (m Machine) context() string {
	if m.Context == nil {
		return ""
	}
	return m.Context()
}

// socket is the first of containerd's that is there; "" where none is.
func (m Machine) socket() string {
	if i := slices.IndexFunc(Sockets, m.Exists); i >= 0 {
		return Sockets[i]
	}
	return ""
}

// Here returns the choice as this machine has it. A container may know an engine by a path where a
// folder is mounted: where not even the folder is here, Here takes the usual socket of the same kind
// of engine, if that is here, and says why; else "". A socket alone is also missing while its engine
// restarts, and another engine would say that the containers are gone.
func (c Choice) Here(m Machine) (here Choice, why string) {
	at := c.at()
	path := strings.TrimPrefix(*at, "unix://")
	usual := c.usual(m, path)
	if !filepath.IsAbs(path) || m.Exists(filepath.Dir(path)) || usual == "" || !m.Exists(usual) {
		return c, ""
	}
	if *at = usual; c.Kind == Docker {
		*at = "unix://" + usual
	}
	return c, path + " is not here, and " + usual + " is"
}

// at is where the choice keeps the address of its engine.
func (c *Choice) at() *string {
	switch c.Kind {
	case Containerd:
		return &c.Address
	case CRIO:
		return &c.CRIOAddress
	default:
		return &c.DockerHost
	}
}

// usual is the socket of this kind of engine without an address. Docker and Podman, which are one
// kind, are told apart by path, the address that they had.
func (c Choice) usual(m Machine, path string) string {
	switch {
	case c.Kind == Containerd:
		return m.socket()
	case c.Kind == CRIO:
		return CRIOSocket
	case strings.Contains(path, "podman"):
		return podmanSocket
	default:
		return dockerSocket
	}
}

// Given reports whether a person chose anything, by flags or by the environment.
func (c Choice) Given(m Machine) bool {
	return c.Kind != "" && c.Kind != Auto || len(c.Namespaces) > 0 ||
		cmp.Or(c.DockerHost, c.Address, c.CRIOAddress, m.Getenv("DOCKER_HOST"), m.Getenv("CONTAINERD_ADDRESS")) != ""
}

// String names the engine and where it listens, for people.
func (c Choice) String() string {
	text := cmp.Or(c.Kind, Auto)
	if at := map[string]string{Docker: c.DockerHost, Containerd: c.Address, CRIO: c.CRIOAddress}[c.Kind]; at != "" {
		text += " at " + at
	}
	if c.Kind == Containerd && len(c.Namespaces) > 0 {
		text += ", namespaces " + strings.Join(c.Namespaces, ", ")
	}
	return text
}

// Flags are the flags by which another program of ours makes the same choice.
func (c Choice) Flags() []string {
	var flags []string
	for _, f := range []struct{ name, value string }{{"engine", c.Kind}, {"docker.host", c.DockerHost}, {"containerd.address", c.Address}, {"crio.address", c.CRIOAddress}} {
		if f.value != "" {
			flags = append(flags, "--"+f.name+"="+f.value)
		}
	}
	for _, n := range c.Namespaces {
		flags = append(flags, "--containerd.namespace="+n)
	}
	return flags
}

// Containerd is how to reach containerd, once that is decided.
func (c Choice) Containerd() ctrd.Options {
	return ctrd.Options{Address: c.Address, Namespaces: c.Namespaces}
}
