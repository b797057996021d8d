package undo

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
	"github.com/laxity/laxity/actuator/swapping"
)

// bringer swaps in, for the guardian, the containers that a dead actuator left swapped out.
type bringer struct {
	o          Options
	swap       *swapping.Swap // opened when there is something on record
	log        *slog.Logger
	lastLogged map[string]string // the last error, by container
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
			delete(s.lastLogged, c.ContainerID)
			continue
		case s.lastLogged[c.ContainerID] != err.Error():
			s.lastLogged[c.ContainerID] = err.Error()
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

func (s *bringer) open() (*swapping.Swap, error) {
	text, err := os.ReadFile(swapping.HelperFile(s.o.StateDir))
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
	return swapping.Open(swapping.Options{StateDir: s.o.StateDir, Engine: s.o.Engine, Helper: command,
		ContainerOf: s.o.ContainerOf, Logger: s.log})
}

func (s *bringer) close() {
	if s.swap != nil {
		_ = s.swap.Close() // the guardian ends
	}
}
