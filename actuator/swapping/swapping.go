// Package swapping puts together what swaps containers off their GPUs: the checkpoint helper, the
// engine that freezes them, and the records of both.
package swapping

import (
	"encoding/json"
	"errors"
	"log/slog"
	"path/filepath"

	"github.com/laxity/laxity/actuator/enforce/checkpoint"
	"github.com/laxity/laxity/actuator/journal"
	"github.com/laxity/laxity/actuator/pausing"
	"github.com/laxity/laxity/internal/engine"
	"github.com/laxity/laxity/internal/replace"
)

// Options of Open. StateDir, ContainerOf and Helper are required.
type Options struct {
	StateDir string
	Engine   engine.Choice
	// Helper is the command line of the checkpoint helper.
	Helper []string
	// Undo: Helper is from HelperFile, and what is on record is to be swapped in. Then HelperFile
	// stays as it is.
	Undo bool
	// ContainerOf returns the id of the container that a process of this machine belongs to.
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
	pauser *pausing.Pauser
}

// Close ends the helper. What is swapped stays so, on record.
func (s *Swap) Close() error { return errors.Join(s.Helper.Close(), s.pauser.Close()) }

// Open makes what swaps containers off their GPUs. How the helper is started goes
// on record, for the guardian. The helper itself is started by its first use.
func Open(o Options) (*Swap, error) {
	if o.StateDir == "" || len(o.Helper) == 0 || o.ContainerOf == nil {
		return nil, errors.New("swapping needs StateDir, Helper and ContainerOf")
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	j, err := journal.Open(checkpoint.PauseJournal(o.StateDir))
	if err != nil {
		return nil, err
	}
	if !o.Undo {
		if err := recordHelper(o.StateDir, o.Helper); err != nil {
			return nil, err
		}
	}
	pauser, err := pausing.Open(o.Engine, j)
	if err != nil {
		return nil, err
	}
	helper := checkpoint.NewHelper(checkpoint.HelperOptions{Command: o.Helper, Logger: o.Logger})
	s, err := checkpoint.New(checkpoint.Options{
		StateDir: o.StateDir, Driver: helper, Memory: helper, Pauser: pauser, NoticeDir: o.NoticeDir,
		Processes: &checkpoint.Proc{Path: "/proc", ContainerOf: o.ContainerOf}, Logger: o.Logger,
	})
	if err != nil {
		return nil, errors.Join(err, pauser.Close())
	}
	return &Swap{Swapper: s, Helper: helper, pauser: pauser}, nil
}

func recordHelper(stateDir string, command []string) error {
	line, err := json.Marshal(command)
	if err != nil {
		return err
	}
	return replace.Changed(HelperFile(stateDir), append(line, '\n'), 0o600)
}

// HelperFile is where the command line of the helper is on record, for whoever brings back what
// a dead actuator swapped out. It is not called *.json, as the records are.
func HelperFile(stateDir string) string { return filepath.Join(checkpoint.Folder(stateDir), "helper") }
