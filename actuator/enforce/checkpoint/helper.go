package checkpoint

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"
)

// Library is what the helper calls: libcuda.Library. Its calls block for as long as the
// driver does.
type Library interface {
	State(pid int) (State, error)
	Lock(pid int, milliseconds uint32) error
	Checkpoint(pid int) error
	Restore(pid int) error
	Unlock(pid int) error
}

// The protocol between actuator and helper: one JSON object a line. The helper sends a hello first.
// Then each request gets one answer with its id, in the order in which the steps end. When the
// requests end, the helper finishes the steps that move memory and ends.
type request struct {
	ID  uint64 `json:"id"`
	Op  string `json:"op"` // state, lock, checkpoint, restore, unlock, memory
	PID int    `json:"pid,omitempty"`
	// Milliseconds limits a lock; 0 is no limit.
	Milliseconds uint32 `json:"milliseconds,omitempty"`
}

type answer struct {
	ID    uint64 `json:"id"`
	State State  `json:"state,omitempty"`
	GPUs  []GPU  `json:"gpus,omitempty"`
	// Code is the driver's error, Error any other one.
	Code  Code   `json:"code,omitempty"`
	Error string `json:"error,omitempty"`
}

// Hello is what the helper found when it started.
type Hello struct {
	// Version is the CUDA version of the driver, 13000 for 13.0; 0 if not known.
	Version int `json:"version,omitempty"`
	// Error says why it cannot work.
	Error string `json:"error,omitempty"`
}

// moves reports whether a step moves memory. Such a step must finish once it has begun: else the
// process may be lost.
func moves(op string) bool { return op == "checkpoint" || op == "restore" }

// ServeOptions of a helper.
type ServeOptions struct {
	// Open loads the library. The helper reports its error to the actuator.
	Open func() (Library, int, error)
	// Memory reads the memory of the GPUs; nil: the helper cannot.
	Memory Memory
}

// Serve is the whole helper process: it reads requests from in and answers them. After the end of in
// it finishes the steps that move memory, and returns.
func Serve(in io.Reader, out io.Writer, o ServeOptions) error {
	s := &server{out: json.NewEncoder(out), memory: o.Memory}
	library, version, err := o.Open()
	s.library = library
	hello := Hello{Version: version}
	if err != nil {
		hello.Error = err.Error()
	}
	s.say(hello)
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		var r request
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			return fmt.Errorf("checkpoint helper: request: %w", err)
		}
		if moves(r.Op) {
			s.moving.Add(1)
		}
		go func() {
			if moves(r.Op) {
				defer s.moving.Done()
			}
			s.say(s.answer(r, err))
		}()
	}
	s.moving.Wait()
	return lines.Err()
}

type server struct {
	library Library
	memory  Memory
	moving  sync.WaitGroup

	mu  sync.Mutex
	out *json.Encoder
}

func (s *server) say(v any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_ = s.out.Encode(v) // nobody reads any more; steps under way finish all the same
}

func (s *server) answer(r request, opened error) answer {
	a := answer{ID: r.ID}
	var err error
	switch {
	case r.Op == "memory" && s.memory == nil:
		err = errors.New("this helper cannot read the GPUs")
	case r.Op == "memory":
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		a.GPUs, err = s.memory.GPUs(ctx)
	case opened != nil:
		err = opened
	default:
		a.State, err = s.step(r)
	}
	var code Code
	if errors.As(err, &code) {
		a.Code = code
	} else if err != nil {
		a.Error = err.Error()
	}
	return a
}

func (s *server) step(r request) (State, error) {
	switch r.Op {
	case "state":
		return s.library.State(r.PID)
	case "lock":
		return "", s.library.Lock(r.PID, r.Milliseconds)
	case "checkpoint":
		return "", s.library.Checkpoint(r.PID)
	case "restore":
		return "", s.library.Restore(r.PID)
	case "unlock":
		return "", s.library.Unlock(r.PID)
	default:
		return "", fmt.Errorf("unknown request %.20q", r.Op)
	}
}
