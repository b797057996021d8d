package usage

import "github.com/laxity/laxity/internal/engine"

// Engine adds the flags that choose the container engine.
func Engine(to flagged, c *engine.Choice) {
	to.Flag("engine", "The container engine: docker (or what speaks its API), containerd (also where Kubernetes made the containers), crio (CRI-O), or auto (the one whose address is given, else the one whose socket is there: Docker, containerd, Podman, CRI-O, in this order).").
		Default(engine.Auto).EnumVar(&c.Kind, engine.Kinds...)
	to.Flag("docker.host", "Address of Docker or Podman, such as unix:///run/podman/podman.sock. Default: DOCKER_HOST, else the socket of the docker context in use, else Docker's usual socket, else root's Podman.").
		StringVar(&c.DockerHost)
	to.Flag("containerd.address", "Socket of containerd. Default: CONTAINERD_ADDRESS, else that of containerd, k3s or MicroK8s.").
		PlaceHolder("/run/containerd/containerd.sock").StringVar(&c.Address)
	to.Flag("containerd.namespace", "Use only this namespace of containerd (k8s.io is Kubernetes'); repeatable. Default: all but Docker's.").
		StringsVar(&c.Namespaces)
	to.Flag("crio.address", "Socket of CRI-O, or of another engine that serves Kubernetes' container runtime interface (CRI). Default: /var/run/crio/crio.sock.").
		PlaceHolder(engine.CRIOSocket).StringVar(&c.CRIOAddress)
}
