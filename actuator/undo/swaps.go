package undo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"reflect"
	"time"

	"github.com/laxity/laxity/actuator/enforce"
	"github.com/laxity/laxity/actuator/enforce/checkpoint"
	"github.com/laxity/laxity/actuator/swapping"
	"github.com/laxity/laxity/internal/engine"
)

// bringer swaps in, for the guardian, the containers that a dead actuator left swapped out.
type bringer struct {
	o          Options
	engines    *engines
	swap       *swapping.Swap // opened when there is something on record
	engine     engine.Choice  // that of swap
	log        *slog.Logger
	lastLogged map[string]string // the last error, by container
}

// resume tries each container on record once and returns how many are left.
func (s *bringer) resume(ctx context.Context) (left int, err error) {
	if n, err := checkpoint.Recorded(s.o.StateDir); n == 0 {
		return 0, err
	}
	if err := s.open(); err != nil {
		return 1, err
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

// open opens the swapper, by the engine of now.
func (s *bringer) open() error {
	_, choice, err := s.engines.open()
	if err != nil || s.swap != nil && reflect.DeepEqual(choice, s.engine) {
		return err
	}
	s.close()
	command, err := s.helper()
	if err != nil {
		return err
	}
	s.swap, err = swapping.Open(swapping.Options{StateDir: s.o.StateDir, Engine: choice, Helper: command, Undo: true,
		ContainerOf: s.o.ContainerOf, Logger: s.log})
	s.engine = choice
	return err
}

// helper is the command line of the checkpoint helper.
func (s *bringer) helper() (command []string, err error) {
	text, err := os.ReadFile(swapping.HelperFile(s.o.StateDir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, errors.New("containers are swapped out, and how to start the checkpoint helper is not on record")
	}
	if err == nil {
		err = json.Unmarshal(text, &command)
	}
	if err != nil {
		return nil, fmt.Errorf("read how to start the checkpoint helper: %w", err)
	}
	return command, nil
}

func (s *bringer) close() {
	if s.swap != nil {
		_ = s.swap.Close() // what is swapped stays so, on record
		s.swap = nil
	}
}
