// Package decisionlog keeps decisions: the last ones in memory, for /api/v1/decisions and
// `laxity why`, and all of them in a bounded file.
//
// It imports the standard library, actuator/decision and internal/aside only.
package decisionlog

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"

	"github.com/laxity/laxity/actuator/decision"
	"github.com/laxity/laxity/internal/aside"
)

// MaxBytes bounds the file, bytes, unless Options say otherwise. Its predecessor is as large.
const MaxBytes = 8 << 20

// Options of a Log.
type Options struct {
	// Keep is how many are kept in memory; 1000 by default.
	Keep int
	// Path of the file; none if empty. MaxBytes bounds it (and one predecessor,
	// PATH.1); the constant MaxBytes by default.
	Path     string
	MaxBytes int64
	// Logger is told when decisions are no longer written, and when they are again; nil: nobody is.
	Logger *slog.Logger
}

// Log is safe for concurrent use.
type Log struct {
	o Options

	mu      sync.Mutex
	last    uint64
	ring    []decision.Decision // oldest first
	file    *os.File
	size    int64
	broken  bool          // the last decision is not in the file
	changed chan struct{} // closed and replaced by each Add
}

// Open opens the file for appending. If that fails it puts the file aside.
func Open(o Options) (*Log, error) {
	if o.Keep <= 0 {
		o.Keep = 1000
	}
	if o.MaxBytes <= 0 {
		o.MaxBytes = MaxBytes
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	l := &Log{o: o, changed: make(chan struct{})}
	err := l.open()
	if err == nil {
		return l, nil
	}
	if _, aerr := aside.Put(o.Path, err); aerr != nil {
		return nil, aerr
	}
	return l, l.open()
}

func (l *Log) open() error {
	if l.o.Path == "" {
		return nil
	}
	f, err := os.OpenFile(l.o.Path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("decisions file: %w", err)
	}
	info, err := f.Stat()
	if err != nil {
		return errors.Join(fmt.Errorf("decisions file: %w", err), f.Close())
	}
	l.file, l.size = f, info.Size()
	return nil
}

// Add numbers the decision and stores it. It does not fail if the file cannot be written; Err
// returns that error.
func (l *Log) Add(d decision.Decision) decision.Decision {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last++
	d.Sequence = l.last
	if len(l.ring) >= l.o.Keep {
		l.ring = append(l.ring[:0:0], l.ring[len(l.ring)-l.o.Keep+1:]...)
	}
	l.ring = append(l.ring, d)
	l.write(d)
	close(l.changed)
	l.changed = make(chan struct{})
	return d
}

func (l *Log) write(d decision.Decision) {
	if l.o.Path == "" {
		return
	}
	line, err := json.Marshal(d)
	if err == nil && l.file != nil && l.size+int64(len(line)) > l.o.MaxBytes {
		err = errors.Join(l.file.Close(), os.Rename(l.o.Path, l.o.Path+".1"))
		l.file = nil
	}
	if err == nil && l.file == nil {
		err = l.open()
	}
	if err == nil {
		var n int
		n, err = l.file.Write(append(line, '\n'))
		l.size += int64(n)
	}
	switch {
	case err != nil && !l.broken:
		l.o.Logger.Error("decisions are not on disk; the last ones are in memory", "err", err)
	case err == nil && l.broken:
		l.o.Logger.Info("decisions are on disk again, but for those between", "file", l.o.Path)
	}
	l.broken = err != nil
}

// Last returns the decisions after the given sequence, oldest first, and a
// channel that is closed by the next one.
func (l *Log) Last(after uint64) ([]decision.Decision, <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := 0
	for i < len(l.ring) && l.ring[i].Sequence <= after {
		i++
	}
	return append([]decision.Decision(nil), l.ring[i:]...), l.changed
}

// Watch sends every decision that is made from now on, and before them those
// kept after the given sequence, until ctx ends; then it closes the channel. A
// reader that is slower than the memory is long misses some: sequences tell.
func (l *Log) Watch(ctx context.Context, after uint64) <-chan decision.Decision {
	out := make(chan decision.Decision)
	go func() {
		defer close(out)
		for {
			ds, changed := l.Last(after)
			for _, d := range ds {
				select {
				case out <- d:
					after = d.Sequence
				case <-ctx.Done():
					return
				}
			}
			select {
			case <-changed:
			case <-ctx.Done():
				return
			}
		}
	}()
	return out
}

// Close closes the file.
func (l *Log) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file == nil {
		return nil
	}
	err := l.file.Close()
	l.file = nil
	l.o.Path = ""
	return err
}
