// Command inside is what the tests of units and stack run beside them, and in their sandboxes.
// It is not part of what one installs.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/laxity/laxity/actuator/enforce/channels"
	"github.com/laxity/laxity/actuator/enforce/checkpoint"
	"github.com/laxity/laxity/exporter/device/sim"
	"github.com/laxity/laxity/exporter/device/sim/simrm"
	"github.com/laxity/laxity/internal/rm"
	"github.com/laxity/laxity/internal/statefolder"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	err := do(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "inside:", err)
		os.Exit(1)
	}
}

func do(ctx context.Context, args []string) error {
	commands := map[string]func(context.Context, []string) error{
		"gpu": gpu, "engine": engine, "hold": hold, "slice": slice, "get": get, "sleep": sleep, "actuator": probe, "guardian": probe, "exporter": probe,
		"swaps": swaps, "helper": helper,
	}
	if f := commands[args[0]]; f != nil {
		return f(ctx, args)
	}
	return fmt.Errorf("there is no command %s", args[0])
}

// gpu SOCKET serves a simulated GPU.
func gpu(ctx context.Context, args []string) error {
	g, err := sim.New(sim.Options{})
	if err != nil {
		return err
	}
	l, err := sim.Listen(ctx, args[1])
	if err != nil {
		return err
	}
	if err := g.Serve(ctx, l); ctx.Err() == nil {
		return err
	}
	return nil
}

// engine SOCKET [ID] is a Docker engine that has no containers, or the one with this id, whose
// process is in the control group that Docker would have made for it.
func engine(ctx context.Context, args []string) error {
	id := ""
	if len(args) > 2 {
		id = args[2]
	}
	answer := func(value any) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Api-Version", "1.41")
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(value)
		}
	}
	server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if pid := processOf(id); pid != 0 {
			switch {
			case strings.HasSuffix(r.URL.Path, "/containers/json"):
				answer([]map[string]string{{"Id": id}})(w, r)
				return
			case strings.HasSuffix(r.URL.Path, "/containers/"+id+"/json"):
				answer(inspected(id, pid))(w, r)
				return
			}
		}
		switch path := r.URL.Path[strings.LastIndexByte(r.URL.Path, '/')+1:]; path {
		case "info":
			answer(map[string]string{"ID": "laxity-test", "Name": "laxity-test"})(w, r)
		case "events":
			w.Header().Set("Content-Type", "application/json")
			w.(http.Flusher).Flush() //nolint:forcetypeassert // net/http's is one
			<-r.Context().Done()
		case "json": // /containers/json
			answer([]string{})(w, r)
		default:
			answer(map[string]string{"ApiVersion": "1.41"})(w, r)
		}
	})}
	defer context.AfterFunc(ctx, func() { _ = server.Close() })()
	l, err := (&net.ListenConfig{}).Listen(ctx, "unix", args[1])
	if err != nil {
		return err
	}
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// processOf is the first process of a container, 0 for none.
func processOf(id string) int {
	procs, err := filepath.Glob("/sys/fs/cgroup/docker.slice/docker-" + id + ".slice/*/cgroup.procs")
	if err != nil || len(procs) != 1 {
		return 0
	}
	text, err := os.ReadFile(procs[0])
	if err != nil {
		return 0
	}
	pid, _ := strconv.Atoi(strings.Fields(string(text) + " 0")[0]) // 0 for an empty one
	return pid
}

// inspected is what Docker says of a running container.
func inspected(id string, pid int) any {
	return map[string]any{
		"Id": id, "Name": "/tenant", "Image": "sha256:" + id, "Created": "2026-01-01T00:00:00Z",
		"State":  map[string]any{"Status": "running", "Running": true, "Pid": pid, "StartedAt": "2026-01-01T00:00:00Z"},
		"Config": map[string]any{"Image": "tenant", "Labels": map[string]string{}},
	}
}

// target reads SOCKET and PID of the arguments.
func target(args []string) (*simrm.Manager, rm.Process, error) {
	pid, err := strconv.Atoi(args[2])
	if err != nil {
		return nil, rm.Process{}, err
	}
	stat, err := rm.System().Stat(pid)
	return simrm.New(args[1]), rm.Process{PID: pid, Start: stat.Start}, err
}

// hold SOCKET PID sets a process's time slice as an actuator does, on record, and dies.
func hold(ctx context.Context, args []string) error {
	driver, p, err := target(args)
	if err != nil {
		return err
	}
	state, err := statefolder.Of("/var/lib/laxity/actuator")
	if err != nil {
		return err
	}
	e, err := channels.New(channels.Options{Driver: driver, Dir: channels.Folder("/run/laxity", state)})
	if err != nil {
		return err
	}
	for {
		r, err := e.Inspect(ctx, channels.Target{Processes: []rm.Process{p}}, channels.Standing{Slice: 333 * time.Microsecond})
		if err == nil && !r.Unsettled {
			return nil
		}
		if err != nil && !errors.Is(err, channels.ErrNoGroup) {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// slice SOCKET PID prints it.
func slice(ctx context.Context, args []string) error {
	driver, p, err := target(args)
	if err != nil {
		return err
	}
	groups, err := driver.Find(ctx, p)
	if err != nil || len(groups) == 0 {
		return fmt.Errorf("%d groups: %w", len(groups), err)
	}
	s, err := driver.Slice(ctx, groups[0])
	fmt.Print(s)
	return err
}

// swaps FILE begins a step in a checkpoint helper, as an actuator or a guardian does, and does not end when it is asked to.
func swaps(_ context.Context, args []string) error {
	h := checkpoint.NewHelper(checkpoint.HelperOptions{Command: []string{"/proc/self/exe", "helper", args[1]}})
	if err := h.Checkpoint(context.Background(), 1); err != nil {
		return err
	}
	select {}
}

// helper FILE is the checkpoint helper, with a driver that takes some seconds for a step. FILE says how far that is.
func helper(_ context.Context, args []string) error {
	return checkpoint.Serve(os.Stdin, os.Stdout, checkpoint.ServeOptions{
		Open: func() (checkpoint.Library, int, error) { return slowDriver{file: args[1]}, 0, nil },
	})
}

type slowDriver struct {
	checkpoint.Library
	file string
}

func (d slowDriver) Checkpoint(int) error {
	if err := os.WriteFile(d.file, []byte("begun"), 0o600); err != nil {
		return err
	}
	time.Sleep(3 * time.Second)
	return os.WriteFile(d.file, []byte("done"), 0o600)
}

// sleep is a program to look into.
func sleep(ctx context.Context, _ []string) error {
	<-ctx.Done()
	return nil
}

// get URL prints what is there.
func get(ctx context.Context, args []string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, args[1], nil)
	if err != nil {
		return err
	}
	answer, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return errors.New(answer.Status)
	}
	_, err = io.Copy(os.Stdout, answer.Body)
	return err
}
