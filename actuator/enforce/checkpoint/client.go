package checkpoint

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"
)

// HelperOptions of a Helper. Command is required.
type HelperOptions struct {
	// Command starts the helper process.
	Command []string
	// Env is added to the helper's environment.
	Env []string
	// StartTimeout bounds the start, which loads the driver's library; 30 s by default.
	StartTimeout time.Duration
	// Again is how long a helper is asked that could not load the driver's library; then another one tries. 5 s by
	// default.
	Again  time.Duration
	Logger *slog.Logger
}

// Helper is a Driver and a Memory in a process of its own. The first call starts the process, and so
// does the first call after it died. A helper in which a call hangs gets no further calls: we kill it
// if that harms nobody; else it ends by itself after its last restore.
type Helper struct {
	o        HelperOptions
	starting chan struct{} // holds one token while a worker is started

	mu     sync.Mutex
	worker *worker // nil: none runs
	closed bool
}

// NewHelper returns a Helper. It starts no process.
func NewHelper(o HelperOptions) *Helper {
	if o.StartTimeout <= 0 {
		o.StartTimeout = 30 * time.Second
	}
	if o.Again <= 0 {
		o.Again = 5 * time.Second
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return &Helper{o: o, starting: make(chan struct{}, 1)}
}

// Close ends the helper. It does not wait: a restore under way finishes before the helper ends.
func (h *Helper) Close() error {
	h.mu.Lock()
	w := h.worker
	h.worker, h.closed = nil, true
	h.mu.Unlock()
	if w != nil {
		w.leave()
	}
	return nil
}

// Start starts the helper before its first use and returns what it found. The error wraps
// ErrUnavailable where this machine has no checkpoint API.
func (h *Helper) Start(ctx context.Context) (Hello, error) {
	w, err := h.get(ctx)
	if err != nil {
		return Hello{}, err
	}
	if w.hello.Error != "" {
		return w.hello, w.hello.unavailable()
	}
	return w.hello, nil
}

func (h Hello) unavailable() error {
	return fmt.Errorf("%w: %s", ErrUnavailable, strings.TrimPrefix(h.Error, ErrUnavailable.Error()+": "))
}

// PID is the helper's process; 0 when none runs.
func (h *Helper) PID() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.worker == nil {
		return 0
	}
	return h.worker.cmd.Process.Pid
}

// State implements Driver.
func (h *Helper) State(ctx context.Context, pid int) (State, error) {
	a, err := h.call(ctx, request{Op: "state", PID: pid})
	var code Code
	if errors.As(err, &code) {
		// The driver's codes for a process without CUDA are not documented.
		return "", fmt.Errorf("%w: %w", ErrNoCUDA, err)
	}
	return a.State, err
}

// Lock implements Driver.
func (h *Helper) Lock(ctx context.Context, pid int, limit time.Duration) error {
	_, err := h.call(ctx, request{Op: "lock", PID: pid, Milliseconds: uint32(max(1, limit.Milliseconds()))})
	return err
}

// Checkpoint implements Driver.
func (h *Helper) Checkpoint(ctx context.Context, pid int) error {
	_, err := h.call(ctx, request{Op: "checkpoint", PID: pid})
	return err
}

// Restore implements Driver.
func (h *Helper) Restore(ctx context.Context, pid int) error {
	_, err := h.call(ctx, request{Op: "restore", PID: pid})
	return err
}

// Unlock implements Driver.
func (h *Helper) Unlock(ctx context.Context, pid int) error {
	_, err := h.call(ctx, request{Op: "unlock", PID: pid})
	return err
}

// GPUs implements Memory.
func (h *Helper) GPUs(ctx context.Context) ([]GPU, error) {
	a, err := h.call(ctx, request{Op: "memory"})
	return a.GPUs, err
}

func (h *Helper) call(ctx context.Context, r request) (answer, error) {
	w, got, id, err := h.send(ctx, r)
	if err != nil {
		return answer{}, err
	}
	select {
	case a, ok := <-got:
		switch {
		case !ok:
			h.drop(w)
			return answer{}, fmt.Errorf("%w: it died during %s of process %d", ErrHelper, r.Op, r.PID)
		case a.Code != 0:
			return a, fmt.Errorf("%s of process %d: %w", r.Op, r.PID, a.Code)
		case a.Error != "":
			return a, fmt.Errorf("%s of process %d: %s", r.Op, r.PID, a.Error)
		}
		return a, nil
	case <-ctx.Done():
		h.o.Logger.Warn("the checkpoint helper does not answer in time; another one takes over", "step", r.Op, "pid", r.PID)
		w.late(id)
		h.drop(w)
		return answer{}, fmt.Errorf("%w: no answer to %s of process %d: %w", ErrHelper, r.Op, r.PID, ctx.Err())
	}
}

// send passes a request to the worker. If the worker died since its last use, send starts another
// one: no step was under way.
func (h *Helper) send(ctx context.Context, r request) (*worker, <-chan answer, uint64, error) {
	for again := true; ; again = false {
		w, err := h.get(ctx)
		switch {
		case err != nil:
			return nil, nil, 0, err
		case w.hello.Error != "" && r.Op != "memory":
			return nil, nil, 0, w.hello.unavailable()
		}
		got, id, err := w.send(r)
		if err == nil {
			return w, got, id, nil
		}
		h.drop(w)
		if !again {
			return nil, nil, 0, err
		}
	}
}

// drop forgets a worker if it is the present one.
func (h *Helper) drop(w *worker) {
	h.mu.Lock()
	if h.worker == w {
		h.worker = nil
	}
	h.mu.Unlock()
	w.leave()
}

// get returns the worker, or starts one.
func (h *Helper) get(ctx context.Context) (*worker, error) {
	select {
	case h.starting <- struct{}{}:
		defer func() { <-h.starting }()
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: it is just being started: %w", ErrHelper, ctx.Err())
	}
	h.mu.Lock()
	w, closed := h.worker, h.closed
	h.mu.Unlock()
	switch {
	case closed:
		return nil, fmt.Errorf("%w: it was closed", ErrHelper)
	case w != nil && !w.dead() && (w.hello.Error == "" || time.Since(w.began) < h.o.Again):
		return w, nil
	case w != nil:
		h.drop(w)
	}
	w, err := startWorker(ctx, h.o)
	if err != nil {
		return nil, err
	}
	h.mu.Lock()
	h.worker, closed = w, h.closed
	h.mu.Unlock()
	if closed {
		w.leave()
		return nil, fmt.Errorf("%w: it was closed", ErrHelper)
	}
	return w, nil
}

// worker is one helper process.
type worker struct {
	cmd   *exec.Cmd
	in    *os.File
	hello Hello
	began time.Time
	ended chan struct{} // the process is gone

	mu      sync.Mutex
	last    uint64
	waiting map[uint64]*pending
	left    bool // no further requests
}

type pending struct {
	op   string
	got  chan answer
	late bool
}

func startWorker(ctx context.Context, o HelperOptions) (*worker, error) {
	ctx, cancel := context.WithTimeout(ctx, o.StartTimeout)
	defer cancel()
	requests, in, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer requests.Close()
	out, answers, err := os.Pipe()
	if err != nil {
		_ = in.Close()
		return nil, err
	}
	defer answers.Close()
	w := &worker{in: in, began: time.Now(), ended: make(chan struct{}), waiting: map[uint64]*pending{}}
	w.cmd = exec.Command(o.Command[0], o.Command[1:]...) //nolint:gosec,noctx // it must be able to outlive a call
	w.cmd.Env = append(os.Environ(), o.Env...)
	w.cmd.Stdin, w.cmd.Stdout, w.cmd.Stderr = requests, answers, os.Stderr
	w.cmd.Dir = "/"
	// In a session of its own: neither Ctrl-C nor the end of our group may end it in the middle of a
	// restore. It learns of our death from the end of its input.
	w.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := w.cmd.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("%w: start: %w", ErrHelper, err), in.Close(), out.Close())
	}
	go func() {
		_ = w.cmd.Wait()
		close(w.ended)
	}()
	hello := make(chan bool, 1)
	go w.read(out, hello)
	select {
	case ok := <-hello:
		if ok {
			return w, nil
		}
		err = fmt.Errorf("%w: it died while it loaded the driver's library", ErrHelper)
	case <-ctx.Done():
		err = fmt.Errorf("%w: it did not start: %w", ErrHelper, ctx.Err())
	}
	_ = w.cmd.Process.Kill() // nothing was begun
	w.leave()
	return nil, err
}

// read passes each answer to the call that waits for it.
func (w *worker) read(out *os.File, hello chan<- bool) {
	defer out.Close()
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 1<<20)
	ok := lines.Scan() && json.Unmarshal(lines.Bytes(), &w.hello) == nil
	hello <- ok
	for ok && lines.Scan() {
		var a answer
		if json.Unmarshal(lines.Bytes(), &a) != nil {
			break
		}
		w.mu.Lock()
		if p := w.waiting[a.ID]; p != nil {
			delete(w.waiting, a.ID)
			p.got <- a
		}
		w.mu.Unlock()
		w.reap()
	}
	w.leave()
	w.mu.Lock()
	defer w.mu.Unlock()
	for id, p := range w.waiting {
		delete(w.waiting, id)
		close(p.got)
	}
}

func (w *worker) send(r request) (<-chan answer, uint64, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.left {
		return nil, 0, fmt.Errorf("%w: it is gone", ErrHelper)
	}
	w.last++
	r.ID = w.last
	line, err := json.Marshal(r)
	if err != nil {
		return nil, 0, err
	}
	got := make(chan answer, 1)
	w.waiting[r.ID] = &pending{op: r.Op, got: got}
	if _, err := w.in.Write(append(line, '\n')); err != nil {
		delete(w.waiting, r.ID)
		return nil, 0, fmt.Errorf("%w: %w", ErrHelper, err)
	}
	return got, r.ID, nil
}

// late: no call waits for this answer any more.
func (w *worker) late(id uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if p := w.waiting[id]; p != nil {
		p.late = true
	}
}

// leave sends no further requests. Steps under way go on.
func (w *worker) leave() {
	w.mu.Lock()
	if !w.left {
		w.left = true
		_ = w.in.Close()
	}
	w.mu.Unlock()
	w.reap()
}

// reap kills a helper that was left, if its hanging calls move no memory and nobody waits for them.
func (w *worker) reap() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.left || w.dead() {
		return
	}
	for _, p := range w.waiting {
		if moves(p.op) || !p.late {
			return
		}
	}
	if len(w.waiting) > 0 {
		_ = w.cmd.Process.Kill()
	}
}

func (w *worker) dead() bool {
	select {
	case <-w.ended:
		return true
	default:
		return false
	}
}

var (
	_ Driver = (*Helper)(nil)
	_ Memory = (*Helper)(nil)
)
