// Command simgpu serves one simulated GPU on a unix socket, for the Compose stack:
// the exporter reads it with --device=sim:SOCKET, and containers
// compute on it by the stand-in libcuda, which this command lays ready. It is
// not part of what one installs on a machine with GPUs.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/alecthomas/kingpin/v2"

	"github.com/laxity/laxity/exporter/device"
	"github.com/laxity/laxity/exporter/device/sim"
	"github.com/laxity/laxity/exporter/device/sim/cuda"
	"github.com/laxity/laxity/internal/workload"
)

// builtLibrary is where build.sh puts the library into the image.
const builtLibrary = "/usr/lib/laxity-sim/libcuda.so.1"

func main() {
	app := kingpin.New("simgpu", "A simulated GPU for the Compose stack.")
	serve := app.Command("serve", "Serve a simulated GPU until a signal comes.")
	socket := serve.Flag("socket", "Unix socket to listen on.").Required().String()
	library := serve.Flag("library", "Folder to put the stand-in libcuda.so.1 into, for the containers to mount.").Required().String()
	check := app.Command("check", "Ask whether one serves; exit code 0: it does.")
	served := check.Flag("socket", "Its unix socket.").Required().String()
	build := app.Command("build", "Compile libcuda.so.1 and the workload matmul; needs gcc.")
	dir := build.Arg("folder", "Where to put them.").Required().String()

	var err error
	switch kingpin.MustParse(app.Parse(os.Args[1:])) {
	case serve.FullCommand():
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
		err = runServer(ctx, *socket, *library)
		stop()
	case check.FullCommand():
		var gpu device.Device
		if gpu, err = sim.Dial(*served); err == nil {
			err = gpu.Close()
		}
	case build.FullCommand():
		err = runBuild(*dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "simgpu:", err)
		os.Exit(1)
	}
}

func runServer(ctx context.Context, socket, library string) error {
	if err := copyFile(builtLibrary, filepath.Join(library, "libcuda.so.1"), 0o755); err != nil {
		return err
	}
	// Small matrices with the phases of large ones: tenants last as long as on an
	// H200 and need little memory of this machine.
	gpu, err := sim.New(sim.Options{Cards: []sim.Card{{Speed: sim.H200().Scaled(512)}}})
	if err != nil {
		return err
	}
	l, err := sim.Listen(ctx, socket)
	if err != nil {
		return err
	}
	if err := gpu.Serve(ctx, l); err != nil && ctx.Err() == nil {
		return err
	}
	return nil
}

func runBuild(dir string) error {
	program, err := workload.Build("")
	if err != nil {
		return err
	}
	lib, err := cuda.Build("")
	if err != nil {
		return err
	}
	return errors.Join(
		copyFile(program, filepath.Join(dir, "matmul"), 0o755),
		copyFile(filepath.Join(lib, "libcuda.so.1"), filepath.Join(dir, "libcuda.so.1"), 0o755),
	)
}

func copyFile(from, to string, mode os.FileMode) error {
	content, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, content, mode)
}
