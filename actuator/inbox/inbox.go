// Package inbox is a durable, bounded queue of messages: what Put accepted
// survives a crash, comes out in the order in which it went in, and stays until
// Remove says that it took effect.
//
// It is an adapter of bbolt and knows nothing of alerts.
package inbox

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.etcd.io/bbolt"

	"github.com/laxity/laxity/internal/boltfile"
)

// ErrFull means that there is no room; it may be tried again.
var ErrFull = errors.New("inbox is full")

// Bounds of an inbox: messages, and bytes of their payloads.
type Bounds struct {
	Messages int
	Bytes    int64
}

// Entry is one message with the time at which it was accepted.
type Entry struct {
	ID       uint64
	Received time.Time
	Payload  []byte
}

// Inbox is safe for concurrent use.
type Inbox struct {
	db    *bbolt.DB
	most  Bounds
	ready chan struct{}

	mu   sync.Mutex
	held Bounds
}

var bucket = []byte("messages")

// Open opens or makes the file. It puts a damaged file aside, and damaged says so; Alertmanager
// repeats the alerts that still fire.
func Open(path string, most Bounds) (in *Inbox, damaged, err error) {
	in = &Inbox{most: most, ready: make(chan struct{}, 1)}
	in.db, damaged, err = boltfile.Open(path, func(tx *bbolt.Tx) error {
		in.held = Bounds{} // a damaged file was counted in part
		b, err := tx.CreateBucketIfNotExists(bucket)
		if err != nil {
			return err
		}
		return b.ForEach(func(k, v []byte) error {
			if len(k) != 8 || len(v) < 8 {
				return fmt.Errorf("entry %x is damaged", k)
			}
			in.add(1, len(v))
			return nil
		})
	})
	if err != nil {
		return nil, damaged, fmt.Errorf("inbox (does another actuator use it?): %w", err)
	}
	in.signal()
	return in, damaged, nil
}

// Bounds returns what it holds at most.
func (in *Inbox) Bounds() Bounds { return in.most }

// Put keeps the message. When it returns nil, the message is on disk.
func (in *Inbox) Put(payload []byte, received time.Time) error {
	value := append(binary.BigEndian.AppendUint64(nil, uint64(received.UnixNano())), payload...)
	// Reserved before the write, so that concurrent writers do not count the same room.
	if !in.take(len(value)) {
		return fmt.Errorf("inbox: %w", ErrFull)
	}
	err := in.db.Update(func(tx *bbolt.Tx) error {
		b := tx.Bucket(bucket)
		id, err := b.NextSequence()
		if err != nil {
			return err
		}
		return b.Put(binary.BigEndian.AppendUint64(nil, id), value)
	})
	if err != nil {
		in.add(-1, -len(value))
		return fmt.Errorf("inbox: %w", err)
	}
	in.signal()
	return nil
}

// take makes room for a message, or reports that there is none.
func (in *Inbox) take(size int) bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.held.Messages >= in.most.Messages || in.held.Bytes+int64(size) > in.most.Bytes {
		return false
	}
	in.held.Messages++
	in.held.Bytes += int64(size)
	return true
}

func (in *Inbox) add(messages, bytes int) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.held.Messages += messages
	in.held.Bytes += int64(bytes)
}

// After returns the oldest message that came in after the one with this id (0: the oldest of all),
// without taking it out.
func (in *Inbox) After(id uint64) (e Entry, ok bool, err error) {
	err = in.db.View(func(tx *bbolt.Tx) error {
		k, v := tx.Bucket(bucket).Cursor().Seek(binary.BigEndian.AppendUint64(nil, id+1))
		if k == nil {
			return nil
		}
		ok = true
		e = Entry{
			ID:       binary.BigEndian.Uint64(k),
			Received: time.Unix(0, int64(binary.BigEndian.Uint64(v))),
			Payload:  append([]byte(nil), v[8:]...), // v dies with the transaction
		}
		return nil
	})
	if err != nil {
		err = fmt.Errorf("inbox: %w", err)
	}
	return e, ok, err
}

// Remove takes the messages up to this id out, after they took effect: one write for all of them.
func (in *Inbox) Remove(id uint64) error {
	messages, bytes := 0, 0
	err := in.db.Update(func(tx *bbolt.Tx) error {
		c := tx.Bucket(bucket).Cursor()
		for k, v := c.First(); k != nil && binary.BigEndian.Uint64(k) <= id; k, v = c.First() {
			messages, bytes = messages+1, bytes+len(v)
			if err := c.Delete(); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("inbox: %w", err)
	}
	in.add(-messages, -bytes)
	return nil
}

// Last returns the id of the message that came in last, taken out or not; 0: none ever, or
// closed.
func (in *Inbox) Last() (id uint64) {
	_ = in.db.View(func(tx *bbolt.Tx) error {
		id = tx.Bucket(bucket).Sequence()
		return nil
	})
	return id
}

// Len counts the messages.
func (in *Inbox) Len() int {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.held.Messages
}

// Ready has a value when something may have come in.
func (in *Inbox) Ready() <-chan struct{} { return in.ready }

func (in *Inbox) signal() {
	select {
	case in.ready <- struct{}{}:
	default:
	}
}

// Close closes the file.
func (in *Inbox) Close() error { return in.db.Close() }
