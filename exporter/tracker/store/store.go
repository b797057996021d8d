// Package store keeps on disk what must survive a restart of the tracker: unfinished tasks,
// the history of ended ones, settings changed at run time, and each card's idle power.
//
// It is a small key-value file (bbolt). A write is one transaction: after a crash the file
// has the state before it or after it. It imports bbolt, exporter/task, internal/boltfile,
// exporter/tracker/core and the standard library.
package store

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/laxity/laxity/exporter/task"
	"github.com/laxity/laxity/exporter/tracker/core"
	"github.com/laxity/laxity/internal/boltfile"
)

var (
	bucketOpen      = []byte("open")       // task id → core.Saved
	bucketEnded     = []byte("ended")      // task id → task.Task
	bucketOverrides = []byte("deadlines")  // container id → core.Override; at first deadlines alone could be changed
	bucketIdle      = []byte("idle_watts") // UUID → W
	bucketMeta      = []byte("meta")

	keyAlive   = []byte("alive")
	keyVersion = []byte("version")
)

const version = "1"

// File is a store in one file. It is safe for concurrent use.
type File struct {
	db *bolt.DB
}

// Open opens dir/tasks.db, and makes the folder and the file where they are missing. It moves
// a file aside that it cannot read (damaged, or of another version), and returns the reason
// as aside: an exporter that starts is worth more than history. err says what to do.
func Open(dir string) (f *File, aside error, err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, nil, fmt.Errorf("state folder: %w: choose another with --state-dir", err)
	}
	path := filepath.Join(dir, "tasks.db")
	db, aside, err := boltfile.Open(path, prepare)
	switch {
	case errors.Is(err, boltfile.ErrInUse):
		return nil, nil, fmt.Errorf("%s is in use: is another exporter running? Stop it, or choose another --state-dir", path)
	case err != nil:
		return nil, aside, err
	}
	return &File{db: db}, aside, nil
}

func prepare(tx *bolt.Tx) error {
	for _, name := range [][]byte{bucketOpen, bucketEnded, bucketOverrides, bucketIdle, bucketMeta} {
		if _, err := tx.CreateBucketIfNotExists(name); err != nil {
			return err
		}
	}
	meta := tx.Bucket(bucketMeta)
	if v := meta.Get(keyVersion); v != nil && string(v) != version {
		return fmt.Errorf("version %q, this program writes %s", v, version)
	}
	return meta.Put(keyVersion, []byte(version))
}

// Close closes the file.
func (f *File) Close() error { return f.db.Close() }

// Load returns everything that is stored. It leaves out an entry that it cannot read, and
// names it in err; the rest is valid.
func (f *File) Load() (core.State, error) {
	s := core.State{Overrides: map[string]core.Override{}, IdleWatts: map[string]float64{}}
	var errs []error
	err := f.db.View(func(tx *bolt.Tx) error {
		errs = append(errs,
			each(tx.Bucket(bucketOpen), func(_ string, v core.Saved) { s.Open = append(s.Open, v) }),
			each(tx.Bucket(bucketEnded), func(_ string, v task.Task) { s.Ended = append(s.Ended, v) }),
			each(tx.Bucket(bucketOverrides), func(id string, v core.Override) { s.Overrides[id] = v }),
			each(tx.Bucket(bucketIdle), func(uuid string, v float64) { s.IdleWatts[uuid] = v }))
		if v := tx.Bucket(bucketMeta).Get(keyAlive); v != nil {
			errs = append(errs, s.Alive.UnmarshalText(v))
		}
		return nil
	})
	return s, errors.Join(append(errs, err)...)
}

func each[T any](b *bolt.Bucket, take func(key string, value T)) error {
	var errs []error
	_ = b.ForEach(func(k, v []byte) error {
		var value T
		if err := json.Unmarshal(v, &value); err != nil {
			errs = append(errs, fmt.Errorf("stored entry %s: %w", k, err))
			return nil
		}
		take(string(k), value)
		return nil
	})
	return errors.Join(errs...)
}

// Save writes the changes and the time at which the exporter was alive, all or
// nothing, and returns when they are on disk.
func (f *File) Save(c core.Changes, alive time.Time) error {
	return f.db.Update(func(tx *bolt.Tx) error {
		open, ended, overrides := tx.Bucket(bucketOpen), tx.Bucket(bucketEnded), tx.Bucket(bucketOverrides)
		var errs []error
		for id, s := range c.Open {
			errs = append(errs, put(open, id, s))
		}
		for id, t := range c.Ended {
			errs = append(errs, open.Delete([]byte(id)), put(ended, id, t))
		}
		for _, id := range c.Dropped {
			errs = append(errs, open.Delete([]byte(id)), ended.Delete([]byte(id)))
		}
		for id, o := range c.Overrides {
			if o == nil {
				errs = append(errs, overrides.Delete([]byte(id)))
				continue
			}
			errs = append(errs, put(overrides, id, o))
		}
		for uuid, watts := range c.IdleWatts {
			errs = append(errs, put(tx.Bucket(bucketIdle), uuid, watts))
		}
		text, err := alive.MarshalText()
		errs = append(errs, err, tx.Bucket(bucketMeta).Put(keyAlive, text))
		return errors.Join(errs...)
	})
}

func put(b *bolt.Bucket, key string, value any) error {
	v, err := json.Marshal(value)
	if err != nil {
		return err
	}
	return b.Put([]byte(key), v)
}
