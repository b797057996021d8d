// Package boltfile opens bbolt files, and puts damaged ones aside.
//
// It imports bbolt, internal/aside and the standard library.
package boltfile

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"

	"github.com/laxity/laxity/internal/aside"
)

// ErrInUse means that another process has the file open.
var ErrInUse = errors.New("another process uses it")

// patience is how long an ending process may still have the file open.
const patience = 2 * time.Second

// Open opens or makes the file, and runs prepare in a first writing transaction. If the file cannot
// be read to its end, or prepare refuses it, Open puts it aside and makes a new one: damaged says
// so. The error wraps ErrInUse if another process has the file open. Where the system refuses
// (permission, a full disk, too many open files), Open returns the error and leaves the file.
func Open(path string, prepare func(*bbolt.Tx) error) (db *bbolt.DB, damaged error, err error) {
	db, why := open(path, prepare)
	switch {
	case why == nil:
		return db, nil, nil
	case errors.Is(why, berrors.ErrTimeout):
		return nil, nil, fmt.Errorf("open %s: %w", path, ErrInUse)
	}
	if _, err := os.Lstat(path); err != nil { // nothing to put aside
		return nil, nil, fmt.Errorf("open %s (choose a writable --state-dir): %w", path, why)
	}
	if refused(why) {
		return nil, nil, fmt.Errorf("open %s (the file is left as it is: mend this, or choose another --state-dir): %w", path, why)
	}
	d, err := aside.Put(path, why)
	if err != nil {
		return nil, nil, err
	}
	if db, err = open(path, prepare); err != nil {
		return nil, d, fmt.Errorf("make %s anew (is the disk full?): %w", path, err)
	}
	return db, d, nil
}

// refusals are errors of the system that say nothing about what the file holds.
var refusals = []syscall.Errno{
	syscall.EACCES, syscall.EPERM, syscall.EROFS, syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM,
	syscall.ENOSPC, syscall.EDQUOT, syscall.EIO,
}

// refused reports whether the system refused. Of some errors bbolt keeps the text alone.
func refused(err error) bool {
	for _, r := range refusals {
		if errors.Is(err, r) || strings.HasSuffix(err.Error(), ": "+r.Error()) {
			return true
		}
	}
	return false
}

// openFile is a variable for tests.
var openFile = os.OpenFile

func open(path string, prepare func(*bbolt.Tx) error) (db *bbolt.DB, err error) {
	// bbolt panics on some damage, and reads beyond the end of a truncated file, which is a fault.
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if r := recover(); r != nil {
			db, err = nil, fmt.Errorf("damaged: %v", r)
		}
	}()
	if s, err := os.Stat(path); err == nil && !s.Mode().IsRegular() {
		return nil, fmt.Errorf("it is no file but %s", s.Mode().Type())
	}
	db, err = bbolt.Open(path, 0o600, &bbolt.Options{Timeout: patience, FreelistType: bbolt.FreelistMapType, OpenFile: openFile})
	if err != nil {
		return nil, err
	}
	if err = whole(db, path); err == nil {
		err = try(db)
	}
	if err == nil {
		err = db.Update(prepare)
	}
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return db, nil
}

// whole checks that the file is not shorter than its header says.
func whole(db *bbolt.DB, path string) error {
	s, err := os.Stat(path)
	if err != nil {
		return err
	}
	return db.View(func(tx *bbolt.Tx) error {
		if s.Size() < tx.Size() {
			return fmt.Errorf("it was cut off: %d of %d bytes", s.Size(), tx.Size())
		}
		return nil
	})
}

// leastEntry is the least number of bytes of an entry in a file.
const leastEntry = 16

// errTried ends the transaction of try, which keeps nothing.
var errTried = errors.New("tried")

// try rewrites every entry and rolls that back: this reads every page, also those that only a write
// needs. A damaged file may contain a cycle.
func try(db *bbolt.DB) error {
	var found error
	err := db.Update(func(tx *bbolt.Tx) error {
		left := tx.Size() / leastEntry
		found = tx.ForEach(func(_ []byte, b *bbolt.Bucket) error { return tryBucket(b, &left) })
		return errTried
	})
	if errors.Is(err, errTried) {
		return found
	}
	return err
}

func tryBucket(b *bbolt.Bucket, left *int64) error {
	type entry struct{ key, value []byte }
	var all []entry
	err := b.ForEach(func(k, v []byte) error {
		if *left--; *left < 0 {
			return errors.New("its pages form a cycle")
		}
		if n := len(all); n > 0 && bytes.Compare(all[n-1].key, k) >= 0 {
			return fmt.Errorf("its keys are out of order: %q before %q", all[n-1].key, k)
		}
		all = append(all, entry{bytes.Clone(k), bytes.Clone(v)}) // a missing page is a fault
		return nil
	})
	if err != nil {
		return err
	}
	for _, e := range all {
		sub := b.Bucket(e.key)
		switch {
		case sub != nil:
			err = tryBucket(sub, left)
		default:
			if !bytes.Equal(b.Get(e.key), e.value) {
				return fmt.Errorf("its entry %q is not found", e.key)
			}
			err = b.Put(e.key, e.value)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
