package simrun_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/mount"
	"github.com/docker/docker/api/types/volume"

	"github.com/laxity/laxity/cmd/laxity/internal/run"
	"github.com/laxity/laxity/cmd/laxity/internal/simrun"
	"github.com/laxity/laxity/exporter/device/sim"
	"github.com/laxity/laxity/exporter/device/sim/simtest"
	"github.com/laxity/laxity/internal/needtest"
)

func prepare(t *testing.T, args string) (run.Spec, string, error) {
	t.Helper()
	s, err := run.Parse(run.Simulated, strings.Fields(args))
	if err != nil {
		t.Fatal(err)
	}
	gpu := simrun.GPU{Mounts: []mount.Mount{{Type: mount.TypeBind, Source: "/s", Target: "/run/s"}, {Type: mount.TypeVolume, Source: "v", Target: "/l", ReadOnly: true}}, Env: []string{"A=b"}}
	return simrun.Prepare(s, gpu, func() (string, error) { return "built:in", nil }, "1234")
}

func TestPrepare(t *testing.T) {
	const gpu = "--mount type=bind,source=/s,target=/run/s --mount type=volume,source=v,target=/l,readonly --env A=b "
	for _, tt := range []struct{ args, flags, image, name, labels, first string }{
		{"--deadline 9s", gpu + "--name matmul-1234 --detach --rm", "built:in", "matmul-1234", "9s ", "--n 512"},
		{"--deadline 9s --name red matmul --n 64 --kernels 1", gpu + "--name red --detach --rm", "built:in", "red", "9s ", "--n 64"},
		{"--deadline 50ms -d --restart always server", gpu + "-d --restart always --name server-1234", "built:in", "server-1234", "50ms busy", "--n 64"},
		{"--gpu-memory 4GiB --label laxity.release=process server", gpu + "--name server-1234 --detach --rm", "built:in", "server-1234", " process", "--n 64"},
		{"--deadline 9s --rm=false matmul", gpu + "--rm=false --name matmul-1234 --detach", "built:in", "matmul-1234", "9s ", "--n 512"},
		{"--deadline 9s -e X=y --rm mine:1 ./train fast", gpu + "-e X=y --rm", "mine:1", "", "9s ", "./train fast"},
	} {
		s, name, err := prepare(t, tt.args)
		if err != nil {
			t.Errorf("%s: %v", tt.args, err)
			continue
		}
		labels := s.Labels["laxity.deadline"] + " " + s.Labels["laxity.release"]
		if got := strings.Join(s.Flags, " "); got != tt.flags || s.Image != tt.image || name != tt.name || labels != tt.labels || !strings.HasPrefix(strings.Join(s.Args, " "), tt.first) {
			t.Errorf("%s: flags %q, image %q, name %q, labels %q, args %q", tt.args, got, s.Image, name, labels, s.Args)
		}
	}
	if _, _, err := prepare(t, "--rm mine:1"); !errors.Is(err, simrun.ErrNoWish) {
		t.Errorf("without a label: %v", err)
	}
}

// A container gets the GPU of a Compose stack, which only its volumes name.
func TestFindInAStack(t *testing.T) {
	docker := simtest.Docker(t)
	ctx := context.Background()
	if _, err := simrun.Find(ctx, docker, []string{"/nonexistent/gpu.sock"}); err != nil && !strings.Contains(err.Error(), "laxity up --device=sim") {
		t.Errorf("it says %v; want what to do", err)
	}
	image := simtest.Image(t, docker)
	var points []string
	for range 2 {
		v, err := docker.VolumeCreate(ctx, volume.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := docker.VolumeRemove(ctx, v.Name, true); err != nil {
				t.Errorf("remove the volume: %v", err)
			}
		})
		points = append(points, v.Name, v.Mountpoint)
	}
	library, err := os.ReadFile(filepath.Join(simtest.Library(t), "libcuda.so.1"))
	if err == nil {
		err = os.WriteFile(filepath.Join(points[3], "libcuda.so.1"), library, 0o755)
	}
	if errors.Is(err, os.ErrPermission) {
		needtest.Root.Skip(t, "the volumes of the engine are root's:", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	gpu, err := sim.New(simrun.Card())
	if err != nil {
		t.Fatal(err)
	}
	listener, err := sim.Listen(ctx, filepath.Join(points[1], "gpu.sock"))
	if err != nil {
		t.Fatal(err)
	}
	serving, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- gpu.Serve(serving, listener) }()
	t.Cleanup(func() { stop(); <-ended })

	start := func(labels map[string]string, mounts []mount.Mount, env []string, args ...string) string {
		made, err := docker.ContainerCreate(ctx, &container.Config{Image: image, Labels: labels, Cmd: args, Env: env}, &container.HostConfig{Mounts: mounts, NetworkMode: "none"}, nil, nil, "")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = docker.ContainerRemove(ctx, made.ID, container.RemoveOptions{Force: true}) })
		if err := docker.ContainerStart(ctx, made.ID, container.StartOptions{}); err != nil {
			t.Fatal(err)
		}
		return made.ID
	}
	volumes := []mount.Mount{{Type: mount.TypeVolume, Source: points[0], Target: "/run/laxity-sim"}, {Type: mount.TypeVolume, Source: points[2], Target: "/usr/local/lib/laxity-sim"}}
	env := []string{"LAXITY_SIM_SOCKET=/run/laxity-sim/gpu.sock", "LD_LIBRARY_PATH=/usr/local/lib/laxity-sim"}
	start(map[string]string{"com.docker.compose.service": "simgpu"}, volumes, env, "--context-only", "--hold", "300")
	found, err := simrun.Find(ctx, docker, []string{"/nonexistent/gpu.sock"})
	if err != nil || len(found.Mounts) != 2 || !slices.Equal(found.Env, env) {
		t.Fatalf("%+v, %v", found, err)
	}
	id := start(nil, found.Mounts, found.Env, "--n", "64", "--kernels", "1")
	done, failed := docker.ContainerWait(ctx, id, container.WaitConditionNotRunning)
	select {
	case end := <-done:
		if end.StatusCode != 0 {
			t.Errorf("a container on the found GPU ends with %d", end.StatusCode)
		}
	case err := <-failed:
		t.Fatal(err)
	}
}
