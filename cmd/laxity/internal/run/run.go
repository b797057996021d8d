package run

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/laxity/laxity/actuator/admission"
	"github.com/laxity/laxity/actuator/placement/api"
	"github.com/laxity/laxity/exporter/task"
	"github.com/laxity/laxity/internal/plain"
)

// ExitFailed is the exit code when no container ran, as Docker's own.
const ExitFailed = 125

// Placements are the calls to an actuator that Runner needs.
type Placements interface {
	Place(ctx context.Context, w api.Wanted) (api.Placed, error)
	Check(ctx context.Context, id string) error
	Bind(ctx context.Context, id, container string) error
	Release(ctx context.Context, id string) error
	Admission(ctx context.Context, q admission.Question) (admission.Answer, error)
}

// Runner runs a Spec.
type Runner struct {
	// Docker is the docker command with its global options: {"docker"}.
	Docker []string
	// Podman is used for the engine of this machine in place of Docker, if not nil.
	Podman     []string
	Placements Placements
	Stdin      io.Reader
	Stdout     io.Writer
	Stderr     io.Writer
	// Signals are passed on to docker, unless Received reports that the terminal has sent
	// docker the same one; may be nil. One that comes before docker starts ends Run.
	Signals  <-chan os.Signal
	Received func(os.Signal) bool
}

// attempts is how often a node is chosen, in case the chosen one fills up before the
// container is created.
const attempts = 3

// Run places and runs. The code is docker's; an error comes with ExitFailed, with ExitRefused by --require, or with
// 128 and the signal that came before docker started, and means that no container exists: it was not created, or was
// removed again.
func (r *Runner) Run(ctx context.Context, s Spec) (code int, err error) {
	cleanup, hurry := cleanupContext(ctx)
	asking, settle := r.untilSignal(ctx, hurry)
	defer settle()
	var p api.Placement
	var engine []string
	if s.Node == Local {
		err = r.required(asking, s, nil)
	} else {
		p, engine, err = r.place(asking, s)
	}
	switch {
	case err != nil:
		code = exitOf(s, err)
		var kept error
		if p.ID != "" {
			kept = r.release(cleanup, p)
		}
		if signal := settle(); signal != nil {
			code, err = interrupted(signal)
		}
		return code, errors.Join(err, kept)
	case s.Node == Local:
		return r.attached(settle, r.commandLine(r.local(), s, nil, s.CIDFile))
	default:
		return r.placed(cleanup, s, p, engine, settle, hurry)
	}
}

// place reserves a GPU, and returns the reservation and docker's options for the engine of
// its node. With an error it returns the reservation that is left to release, if any.
func (r *Runner) place(ctx context.Context, s Spec) (p api.Placement, engine []string, err error) {
	w := api.Wanted{
		Deadline: api.Text(s.Labels[task.LabelDeadline]), GPUMemory: api.Text(s.Labels[task.LabelGPUMemory]),
		Estimate: api.Text(s.Estimate), Image: task.ImageName(s.Image),
	}
	if s.Node != Auto {
		w.Node = s.Node
	}
	for range attempts {
		var placed api.Placed
		if placed, err = r.choose(ctx, s, w); err != nil {
			return api.Placement{}, nil, err
		}
		if len(placed.Placements) == 0 {
			return api.Placement{}, nil, errors.New("the answer holds no place: is this the address of an actuator that places (--actuator.url)?")
		}
		p = placed.Placements[0]
		if engine, err = r.engine(p); err != nil {
			return p, nil, err
		}
		// Check right before the creation, because much may have happened since the answer.
		if err = (bounded{r.Placements}).Check(ctx, p.ID); err == nil {
			return p, engine, r.required(ctx, s, &p)
		}
		var refused *api.RefusedError
		if !errors.As(err, &refused) || refused.Code/100 != 4 {
			return p, nil, err
		}
	}
	return api.Placement{}, nil, fmt.Errorf("the chosen node filled up %d times before the container was created: %w", attempts, err)
}

// choose asks for a place. Where none keeps every deadline, and the user did not ask for that
// (--require), it asks for one that has the memory: a deadline says when a task is due, and
// is no reason to run nothing.
func (r *Runner) choose(ctx context.Context, s Spec, w api.Wanted) (api.Placed, error) {
	placed, err := bounded{r.Placements}.Place(ctx, w)
	var away *api.UnreachableError
	if errors.As(err, &away) {
		return placed, fmt.Errorf("%w; without placement, on this machine: --node=local", err)
	}
	var refused *api.RefusedError
	if !errors.As(err, &refused) || refused.Code != http.StatusConflict {
		return placed, err
	}
	if s.Require == RequireNothing && w.Deadline != "" {
		last := w
		last.Deadline, last.Estimate = "", ""
		if placed, again := (bounded{r.Placements}).Place(ctx, last); again == nil && len(placed.Placements) > 0 {
			fmt.Fprintf(plain.NewWriter(r.Stderr), "laxity: its deadline may be missed, or another one by it: %v. It starts on %s all the same; --require would refuse\n", err, placed.Placements[0].Node)
			return placed, nil
		}
	}
	return placed, fmt.Errorf("%w; try again later (laxity nodes says what each node waits for), or run it on this machine whatever is there: --node=local", err)
}

// engine returns docker with the options that select the node.
func (r *Runner) engine(p api.Placement) ([]string, error) {
	d := p.Docker
	switch {
	case d.Context != "":
		return []string{r.Docker[0], "--context", d.Context}, nil
	case d.CAFile != "":
		return []string{r.Docker[0], "-H", d.Host, "--tlsverify", "--tlscacert", d.CAFile, "--tlscert", d.CertFile, "--tlskey", d.KeyFile}, nil
	case d.Host != "":
		return []string{r.Docker[0], "-H", d.Host}, nil
	case p.Local:
		return r.local(), nil
	default:
		return nil, fmt.Errorf("node %s was chosen, and the way to its Docker engine is not known: "+
			"give the actuator a nodes.yaml (--nodes.file) with `docker: {host: ssh://user@%[1]s}` or a context", p.Node)
	}
}

// local returns the command for the engine of this machine.
func (r *Runner) local() []string {
	if r.Podman != nil {
		return r.Podman
	}
	return r.Docker
}

// placed creates the container of a reservation and follows it. ctx and hurry are of cleanupContext.
func (r *Runner) placed(ctx context.Context, s Spec, p api.Placement, engine []string, settle func() os.Signal, hurry func()) (int, error) {
	cidFile := s.CIDFile
	if cidFile == "" {
		dir, err := os.MkdirTemp("", "laxity-run-")
		if err != nil {
			return ExitFailed, errors.Join(err, r.release(ctx, p))
		}
		defer os.RemoveAll(dir)
		cidFile = filepath.Join(dir, "cid")
	} else if _, err := os.Stat(cidFile); err == nil {
		return ExitFailed, errors.Join(fmt.Errorf("--cidfile %s: it exists already; remove it or choose another", cidFile), r.release(ctx, p))
	}
	f := &follower{runner: r, promise: p, cidFile: cidFile, done: make(chan struct{}), ended: make(chan struct{})}
	go f.follow(ctx)
	code, err := r.attached(settle, r.commandLine(engine, s, &p, cidFile))
	close(f.done)
	_, settle = r.untilSignal(ctx, hurry)
	defer settle()
	<-f.ended
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	if f.id == "" { // docker says why on standard error
		r.forget(ctx, p)
		return code, err
	}
	switch state, unknown := r.state(ctx, engine, f.id); {
	case unknown != nil:
		// It may run: do not release its GPU.
		fmt.Fprintf(plain.NewWriter(r.Stderr), "laxity: the reservation %s is kept (it expires by itself), because the state of container %s is not known: %v\n", p.ID, f.id, unknown)
		return code, err
	case state == "created" && !s.Create:
		// It never ran. docker run would leave it behind.
		r.forget(ctx, p)
		return code, errors.Join(err, r.remove(ctx, engine, f.id))
	case state == "exited" || state == "dead" || state == "":
		r.forget(ctx, p)
		return code, err
	default:
		return code, err
	}
}

// commandLine consists of docker or podman, its options, the command, what Laxity adds, and what
// the user wrote.
func (r *Runner) commandLine(engine []string, s Spec, p *api.Placement, cidFile string) []string {
	line := slices.Clone(engine)
	if s.Create {
		line = append(line, "create")
	} else {
		line = append(line, "run")
	}
	for _, key := range slices.Sorted(maps.Keys(s.Labels)) {
		line = append(line, "--label", key+"="+s.Labels[key])
	}
	if cidFile != "" {
		line = append(line, "--cidfile", cidFile)
	}
	switch {
	case p == nil || s.NoGPURequest:
	default:
		// NVIDIA's runtime reads the variable where it is the engine's default, and
		// images for CUDA say "all". A simulated GPU's driver reads it too, and no
		// runtime hands that GPU out.
		line = append(line, "--env", visibleGPUs+"="+p.GPU)
		if !p.Simulated {
			line = append(line, gpuRequest(engine, p.GPU)...)
		}
	}
	line = append(line, s.Flags...)
	if strings.HasPrefix(s.Image, "-") {
		line = append(line, "--")
	}
	return append(append(line, s.Image), s.Args...)
}

// attached runs docker to its end, and passes signals on. It does not start docker if settle, of untilSignal, returns a
// signal.
func (r *Runner) attached(settle func() os.Signal, line []string) (int, error) {
	// Not ctx, which would kill docker: it gets a signal, and ends by itself.
	cmd := exec.CommandContext(context.Background(), line[0], line[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = r.Stdin, r.Stdout, r.Stderr
	if signal := settle(); signal != nil {
		return interrupted(signal)
	}
	if err := cmd.Start(); err != nil {
		return ExitFailed, fmt.Errorf("the docker command is needed here: %w", err)
	}
	for len(r.Signals) > 0 { // it came while docker started: docker may have missed it
		_ = cmd.Process.Signal(<-r.Signals)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for {
		select {
		case err := <-ended:
			return exitCode(cmd, err)
		case s := <-r.Signals:
			if r.Received == nil || !r.Received(s) {
				_ = cmd.Process.Signal(s) // it may just have ended
			}
		}
	}
}

func exitCode(cmd *exec.Cmd, err error) (int, error) {
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0, nil
	case !errors.As(err, &exit):
		return ExitFailed, err
	}
	if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return 128 + int(status.Signal()), nil
	}
	return exit.ExitCode(), nil
}

// forget releases the reservation of a container that has ended. That it cannot be released is no
// failure of the container, whose exit code the user waits for.
func (r *Runner) forget(ctx context.Context, p api.Placement) {
	if err := r.release(ctx, p); err != nil {
		fmt.Fprintf(plain.NewWriter(r.Stderr), "laxity: %v\n", err)
	}
}

func (r *Runner) release(ctx context.Context, p api.Placement) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	err := r.Placements.Release(ctx, p.ID)
	var refused *api.RefusedError
	if errors.As(err, &refused) && refused.Code == 404 {
		return nil // it is gone already
	}
	if err != nil {
		return fmt.Errorf("the reservation %s was not released (it expires by itself): %w", p.ID, err)
	}
	return nil
}

// state returns the container's state in the engine's words; "" when it is gone. Whoever gets an error does not know
// whether it runs.
func (r *Runner) state(ctx context.Context, engine []string, id string) (string, error) {
	args := append(slices.Clone(engine[1:]), "container", "inspect", "--format", "{{.State.Status}}", id)
	out, err := exec.CommandContext(ctx, engine[0], args...).Output()
	if err == nil {
		return strings.TrimSpace(string(out)), nil
	}
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return "", err
	}
	said := strings.TrimSpace(string(exit.Stderr))
	if isGone(said) {
		return "", nil
	}
	return "", fmt.Errorf("%w: %s", err, said)
}

// isGone reports whether docker or podman said that there is no such container.
func isGone(said string) bool {
	said = strings.ToLower(said)
	return strings.Contains(said, "no such container") || strings.Contains(said, "no such object")
}

func (r *Runner) remove(ctx context.Context, engine []string, id string) error {
	args := append(slices.Clone(engine[1:]), "container", "rm", id)
	if out, err := exec.CommandContext(ctx, engine[0], args...).CombinedOutput(); err != nil {
		return fmt.Errorf("remove the container that did not start, %s: %w: %s", id, err, strings.TrimSpace(string(out)))
	}
	return nil
}
