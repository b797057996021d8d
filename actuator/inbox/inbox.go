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
	"time"

	"go.etcd.io/bbolt"
)

// ErrFull means that there is no room; it may be tried again.
var ErrFull = errors.New("inbox is full")

// Entry is one message with the time at which it was accepted.
type Entry struct {
	ID       uint64
	Received time.Time
	Payload  []byte
}

// Inbox is safe for concurrent use.
type Inbox struct {
	db    *bbolt.DB
	max   int
	ready chan struct{}
}

var bucket = []byte("messages")

// Open opens or makes the file, for at most max messages.
func Open(path string, max int) (*Inbox, error) {
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{Timeout: time.Second})
	if err != nil {
		return nil, fmt.Errorf("open inbox %s (does another actuator use it?): %w", path, err)
	}
	err = db.Update(func(tx *bbolt.Tx) error {
		_, err := tx.CreateBucketIfNotExists(bucket)
		return err
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("prepare inbox: %w", err), db.Close())
	}
	in := &Inbox{db: db, max: max, ready: make(chan struct{}, 1)}
	in.signal()
	return in, nil
}

// Put keeps the message. When it returns nil, the message is on disk.
func (in *Inbox) Put(payload []byte, received time.Time) error {
	err := in.db.Update(func(tx *bbolt.Tx) error {
		b := tx.Bucket(bucket)
		if count(b) >= in.max {
			return ErrFull
		}
		id, err := b.NextSequence()
		if err != nil {
			return err
		}
		value := binary.BigEndian.AppendUint64(nil, uint64(received.UnixNano()))
		return b.Put(binary.BigEndian.AppendUint64(nil, id), append(value, payload...))
	})
	if err != nil {
		return fmt.Errorf("inbox: %w", err)
	}
	in.signal()
	return nil
}

// Peek returns the oldest message, without taking it out.
func (in *Inbox) Peek() (e Entry, ok bool, err error) {
	err = in.db.View(func(tx *bbolt.Tx) error {
		k, v := tx.Bucket(bucket).Cursor().First()
		if k == nil {
			return nil
		}
		if len(k) != 8 || len(v) < 8 {
			return fmt.Errorf("entry %x is damaged; remove the inbox file", k)
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

// Remove takes a message out, after it took effect. Unknown ids are ignored.
func (in *Inbox) Remove(id uint64) error {
	err := in.db.Update(func(tx *bbolt.Tx) error {
		return tx.Bucket(bucket).Delete(binary.BigEndian.AppendUint64(nil, id))
	})
	if err != nil {
		return fmt.Errorf("inbox: %w", err)
	}
	return nil
}

// Len counts the messages. It is 0 after Close.
func (in *Inbox) Len() (n int) {
	_ = in.db.View(func(tx *bbolt.Tx) error {
		n = count(tx.Bucket(bucket))
		return nil
	})
	return n
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

// count is by cursor, because Stats walks every page; the queue is short.
func count(b *bbolt.Bucket) (n int) {
	c := b.Cursor()
	for k, _ := c.First(); k != nil; k, _ = c.Next() {
		n++
	}
	return n
}
