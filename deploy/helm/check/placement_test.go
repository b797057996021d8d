package check_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
)

// TestPlacement: what places pods has no right at all, flags that the program knows, and a service that is found.
func TestPlacement(t *testing.T) {
	objects := render(t, variants["placement"])
	pod := find[*apps.Deployment](t, objects, "laxity-placement").Spec.Template
	c := pod.Spec.Containers[0]
	switch s := pod.Spec; {
	case s.HostPID, s.HostNetwork, s.HostIPC, *s.AutomountServiceAccountToken, !*s.SecurityContext.RunAsNonRoot:
		t.Errorf("%+v", s)
	case caps(c) != "[]", *c.SecurityContext.AllowPrivilegeEscalation, !*c.SecurityContext.ReadOnlyRootFilesystem:
		t.Errorf("%+v", c.SecurityContext)
	}
	if c.ReadinessProbe == nil || c.LivenessProbe == nil {
		t.Error("kube-scheduler waits for it while it does not answer")
	}
	for _, v := range pod.Spec.Volumes {
		if v.HostPath != nil {
			t.Errorf("it has %s of the node", v.HostPath.Path)
		}
	}
	page, err := os.ReadFile("../../../docs/reference/laxity-actuator.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, arg := range c.Args {
		if name, _, _ := strings.Cut(arg, "="); !strings.Contains(string(page), "`"+name+"`") {
			t.Errorf("laxity-actuator serve knows no %s", arg)
		}
	}
	service := find[*core.Service](t, objects, "laxity-placement")
	for key, value := range service.Spec.Selector {
		if pod.Labels[key] != value {
			t.Errorf("the service wants pods with %s=%s", key, value)
		}
	}
	if s := find[*core.Service](t, objects, "laxity-actuator"); pod.Labels["app.kubernetes.io/name"] == s.Spec.Selector["app.kubernetes.io/name"] {
		t.Error("the actuators' service finds it too")
	}
	if port := service.Spec.Ports[0]; port.TargetPort.StrVal != c.Ports[0].Name || port.Port != c.Ports[0].ContainerPort {
		t.Errorf("%+v, %+v", port, c.Ports[0])
	}
}

// TestWherePlacementRuns: on any node, or where its values say; those of the nodes with GPUs are not its own.
func TestWherePlacementRuns(t *testing.T) {
	for values, want := range map[string][2]string{"placement": {"map[]", "[]"}, "placement's IP": {"map[place:here]", "[{control Exists   <nil>}]"}} {
		pod := find[*apps.Deployment](t, render(t, variants[values]), "laxity-placement").Spec.Template.Spec
		if got := [2]string{fmt.Sprint(pod.NodeSelector), fmt.Sprint(pod.Tolerations)}; got != want {
			t.Errorf("%s: %q, want %q", values, got, want)
		}
	}
}

// TestSchedulerConfiguration: it asks the service; cmd/laxity-actuator tests it with kube-scheduler.
func TestSchedulerConfiguration(t *testing.T) {
	for values, host := range map[string]string{"placement": "laxity-placement.laxity.svc", "placement's IP": "10.96.0.99"} {
		objects := render(t, variants[values])
		if text := find[*core.ConfigMap](t, objects, "laxity-scheduler").Data["config.yaml"]; !strings.Contains(text, "http://laxity:TOKEN@"+host+":9871/api/v1/kubernetes\n") {
			t.Errorf("%s: %s", values, text)
		}
	}
}
