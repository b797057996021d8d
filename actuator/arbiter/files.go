package arbiter

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/laxity/laxity/internal/aside"
	"github.com/laxity/laxity/internal/replace"
)

// readFile decodes a file. It returns anew() if the file is missing or damaged. It puts a damaged
// file aside and logs that.
func readFile[T any](a *Arbiter, path, message string, anew func() T, decode func([]byte) (T, error)) T {
	raw, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return anew()
	}
	if err == nil {
		var v T
		if v, err = decode(raw); err == nil {
			return v
		}
	}
	if damaged, aerr := aside.Put(path, err); aerr != nil {
		err = aerr
	} else {
		err = damaged
	}
	a.log.Error(message, "err", err)
	return anew()
}

// lapsedEvery is the least time between two writes only because leases ended. An alert of a server
// ends with each of its requests, and each write waits for the disk.
const lapsedEvery = 10 * time.Second

// saveLeases writes the leases if they changed, and those that ended after a while, or at once.
func (a *Arbiter) saveLeases(atOnce bool) error {
	now := a.o.Now()
	lapsed := a.leases.Lapsed() && (atOnce || !now.Before(a.lapsedAt))
	if !a.leases.Changed() && !lapsed {
		a.unsaved = false
		return nil
	}
	if err := write(a.leasesPath(), a.leases); err != nil {
		err = fmt.Errorf("write the leases: %w", err)
		if !a.unsaved {
			a.log.Error("leases are not on disk; alerts stay in the inbox until they are", "err", err)
		}
		a.unsaved = true
		return err
	}
	a.unsaved, a.lapsedAt = false, now.Add(lapsedEvery)
	return nil
}

// historyEvery is the least time between two writes of the history: losing the last seconds of it
// does no harm.
const historyEvery = 10 * time.Second

// saveHistory writes the history of tasks.
func (a *Arbiter) saveHistory(atOnce bool) {
	now := a.o.Now()
	if !a.history.Changed() || (!atOnce && now.Before(a.historyAt)) {
		return
	}
	a.historyAt = now.Add(historyEvery)
	if err := write(a.historyPath(), a.history); err != nil {
		a.log.Error("the history of tasks is not on disk", "err", err)
	}
}

// book is what write keeps on disk.
type book interface {
	Encode() ([]byte, error)
	Written()
}

// write replaces the file of a book. After an error the book still counts as changed.
func write(path string, b book) error {
	raw, err := b.Encode()
	if err == nil {
		err = replace.File(path, raw, 0o600)
	}
	if err == nil {
		b.Written()
	}
	return err
}
