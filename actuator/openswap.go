package actuator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/laxity/laxity/actuator/enforce"
	"github.com/laxity/laxity/actuator/enforce/checkpoint"
	"github.com/laxity/laxity/actuator/enforce/docker"
	"github.com/laxity/laxity/actuator/journal"
	"github.com/laxity/laxity/internal/replace"
)

// SwapOptions of OpenSwapper. StateDir, ContainerOf and Helper are required.
type SwapOptions struct {
	StateDir   string
	DockerHost string
	// Helper is the command line of the checkpoint helper.
	Helper []string
	// ContainerOf is as in Options.
	ContainerOf func(pid int) (id string, ok bool, err error)
	// NoticeDir is where the exporter reads which processes are off the GPU; empty: it
	// is not told.
	NoticeDir string
	Logger    *slog.Logger
}

// NoticeDir is where the exporter is told of swaps by default: in the folder of locks,
// which actuator and exporter share.
func NoticeDir(lockDir string) string {
	if lockDir == "" {
		return ""
	}
	return filepath.Join(lockDir, "swapped")
}

// Swap is a Swapper with its helper.
type Swap struct {
	*checkpoint.Swapper
	Helper *checkpoint.Helper
	engine interface{ Close() error }
}

// Close ends the helper. What is swapped stays so, on record.
func (s *Swap) Close() error { return errors.Join(s.Helper.Close(), s.engine.Close()) }

// OpenSwapper makes what swaps containers off their GPUs. How the helper is started goes
// on record, for the guardian. The helper itself is started by its first use.
func OpenSwapper(o SwapOptions) (*Swap, error) {
	if o.StateDir == "" || len(o.Helper) == 0 || o.ContainerOf == nil {
		return nil, errors.New("actuator: swapping needs StateDir, Helper and ContainerOf")
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	j, err := journal.Open(checkpoint.PauseJournal(o.StateDir))
	if err != nil {
		return nil, err
	}
	line, err := json.Marshal(o.Helper)
	if err != nil {
		return nil, err
	}
	if err := replace.File(helperFile(o.StateDir), append(line, '\n'), 0o600); err != nil {
		return nil, err
	}
	engine, err := docker.Dial(o.DockerHost)
	if err != nil {
		return nil, err
	}
	pauser, err := docker.New(docker.Options{Engine: engine, Journal: j})
	if err != nil {
		return nil, errors.Join(err, engine.Close())
	}
	helper := checkpoint.NewHelper(checkpoint.HelperOptions{Command: o.Helper, Logger: o.Logger})
	s, err := checkpoint.New(checkpoint.Options{
		StateDir: o.StateDir, Driver: helper, Memory: helper, Pauser: pauser, NoticeDir: o.NoticeDir,
		Processes: &checkpoint.Proc{Path: "/proc", ContainerOf: o.ContainerOf}, Logger: o.Logger,
	})
	if err != nil {
		return nil, errors.Join(err, engine.Close())
	}
	return &Swap{Swapper: s, Helper: helper, engine: engine}, nil
}

// helperFile is not called *.json, as the records are.
func helperFile(stateDir string) string { return filepath.Join(checkpoint.Folder(stateDir), "helper") }

// bringer brings back for the guardian what a dead actuator left off its GPUs.
type bringer struct {
	o    GuardianOptions
	swap *Swap // opened when there is something on record
	log  *slog.Logger
	said map[string]string // the last error, by container
}

// resume tries each container on record once and returns how many are left.
func (s *bringer) resume(ctx context.Context) (left int, err error) {
	if n, err := s.recorded(); n == 0 {
		return 0, err
	}
	if s.swap == nil {
		if s.swap, err = s.open(); err != nil {
			return 1, err
		}
	}
	all, err := s.swap.Swapped()
	if err != nil {
		return 1, err
	}
	for _, c := range all {
		began := time.Now()
		_, err := s.swap.Resume(ctx, c.ContainerID, nil)
		switch {
		case err == nil || errors.Is(err, enforce.ErrForeign) && !s.still(c.ContainerID):
			s.log.Warn("brought a container back onto its GPU", "container", c.Container, "why", "the actuator is gone", "took", time.Since(began))
			delete(s.said, c.ContainerID)
			continue
		case s.said[c.ContainerID] != err.Error():
			s.said[c.ContainerID] = err.Error()
			s.log.Error("cannot bring a container back onto its GPU now; what was in its GPU memory is kept", "container", c.Container, "err", err)
		}
		left++
	}
	return left, nil
}

func (s *bringer) still(id string) bool {
	all, err := s.swap.Swapped()
	if err != nil {
		return true
	}
	for _, c := range all {
		if c.ContainerID == id {
			return true
		}
	}
	return false
}

// recorded counts what is on record, without making anything.
func (s *bringer) recorded() (int, error) {
	files, err := filepath.Glob(filepath.Join(checkpoint.Folder(s.o.StateDir), "*.json"))
	return len(files), err
}

func (s *bringer) open() (*Swap, error) {
	text, err := os.ReadFile(helperFile(s.o.StateDir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, errors.New("containers are swapped out, and how to start the checkpoint helper is not on record")
	}
	var command []string
	if err == nil {
		err = json.Unmarshal(text, &command)
	}
	if err != nil {
		return nil, fmt.Errorf("read how to start the checkpoint helper: %w", err)
	}
	return OpenSwapper(SwapOptions{StateDir: s.o.StateDir, DockerHost: s.o.DockerHost, Helper: command,
		ContainerOf: s.o.ContainerOf, Logger: s.log})
}

func (s *bringer) close() {
	if s.swap != nil {
		_ = s.swap.Close() // the guardian ends
	}
}
