package forward

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"go.etcd.io/bbolt"

	"github.com/laxity/laxity/actuator/webhook"
	"github.com/laxity/laxity/internal/boltfile"
)

// queue keeps on disk, for each node, the latest state of each alert: so that a
// node that is away for long costs no more than it has alerts, and is not told
// what is over.
type queue struct {
	db  *bbolt.DB
	max int // alerts a node
}

var root = []byte("alerts")

func openQueue(path string, max int) (q *queue, damaged, err error) {
	db, damaged, err := boltfile.Open(path, func(tx *bbolt.Tx) error {
		b, err := tx.CreateBucketIfNotExists(root)
		if err != nil {
			return err
		}
		return b.ForEachBucket(func(node []byte) error {
			return b.Bucket(node).ForEach(func(k, v []byte) error {
				if err := json.Unmarshal(v, &item{}); err != nil {
					return fmt.Errorf("entry %q of node %s is damaged: %w", k, node, err)
				}
				return nil
			})
		})
	})
	if err != nil {
		return nil, damaged, fmt.Errorf("the queue (does another actuator use it?): %w", err)
	}
	return &queue{db: db, max: max}, damaged, nil
}

// put keeps all of them or none. When it returns nil, they are on disk.
func (q *queue) put(others map[string][]webhook.Alert, m webhook.Message, received time.Time) error {
	return q.db.Update(func(tx *bbolt.Tx) error {
		for node, alerts := range others {
			b, err := tx.Bucket(root).CreateBucketIfNotExists([]byte(node))
			if err != nil {
				return err
			}
			for _, a := range alerts {
				if err := q.putOne(b, item{Received: received, Alert: a, Receiver: m.Receiver, ExternalURL: m.ExternalURL}); err != nil {
					return err
				}
			}
			if n := count(b); n > q.max {
				return fmt.Errorf("%w: %d alerts wait for node %s", webhook.ErrFull, n-1, node)
			}
		}
		return nil
	})
}

func (q *queue) putOne(b *bbolt.Bucket, i item) error {
	key := []byte(keyOf(i.Alert))
	if raw := b.Get(key); raw != nil {
		var old item
		if err := json.Unmarshal(raw, &old); err == nil && !supersedes(i.Alert, old.Alert) {
			return nil
		}
	}
	var err error
	if i.Sequence, err = b.NextSequence(); err != nil {
		return err
	}
	raw, err := json.Marshal(i)
	if err != nil {
		return err
	}
	return b.Put(key, raw)
}

// keyOf is the fingerprint, or the labels for an alert made by hand.
func keyOf(a webhook.Alert) string {
	if a.Fingerprint != "" {
		return a.Fingerprint
	}
	var b strings.Builder
	b.WriteString("labels")
	for _, k := range slices.Sorted(maps.Keys(a.Labels)) {
		fmt.Fprintf(&b, " %s=%q", k, a.Labels[k])
	}
	return b.String()
}

// nodes returns those for which something waits.
func (q *queue) nodes() (out []string, err error) {
	err = q.db.View(func(tx *bbolt.Tx) error {
		return tx.Bucket(root).ForEachBucket(func(name []byte) error {
			if k, _ := tx.Bucket(root).Bucket(name).Cursor().First(); k != nil {
				out = append(out, string(name))
			}
			return nil
		})
	})
	return out, err
}

// pending returns the first ones for a node, in the order in which they came: at
// most limit, and no more than fit into one message.
func (q *queue) pending(node string, limit int) ([]item, error) {
	items, err := q.all(node)
	size := 0
	for n, i := range items {
		if size += i.size; n == limit || n > 0 && size > maxMessage {
			return items[:n], err
		}
	}
	return items, err
}

// maxMessage leaves a margin below what a webhook takes, bytes.
const maxMessage = webhook.MaxBytes / 4

// all returns everything for a node.
func (q *queue) all(node string) (items []item, err error) {
	err = q.db.View(func(tx *bbolt.Tx) error {
		b := tx.Bucket(root).Bucket([]byte(node))
		if b == nil {
			return nil
		}
		return b.ForEach(func(k, v []byte) error {
			i := item{Key: string(k), size: len(v)}
			if err := json.Unmarshal(v, &i); err != nil {
				return fmt.Errorf("the queue's entry %q of node %s is damaged; remove its file: %w", k, node, err)
			}
			items = append(items, i)
			return nil
		})
	})
	slices.SortFunc(items, func(a, b item) int {
		if a.Sequence < b.Sequence {
			return -1
		}
		return 1
	})
	return items, err
}

// remove takes items out, except those of which there is news.
func (q *queue) remove(node string, items []item) error {
	return q.db.Update(func(tx *bbolt.Tx) error {
		b := tx.Bucket(root).Bucket([]byte(node))
		if b == nil {
			return nil
		}
		for _, i := range items {
			var now item
			if raw := b.Get([]byte(i.Key)); raw == nil || json.Unmarshal(raw, &now) == nil && now.Sequence != i.Sequence {
				continue
			}
			if err := b.Delete([]byte(i.Key)); err != nil {
				return err
			}
		}
		return nil
	})
}

// expire takes out and returns what came before a time.
func (q *queue) expire(node string, before time.Time) (old []item, err error) {
	items, err := q.all(node)
	if err != nil {
		return nil, err
	}
	old = slices.DeleteFunc(items, func(i item) bool { return !i.Received.Before(before) })
	if len(old) == 0 {
		return nil, nil
	}
	return old, q.remove(node, old)
}

// len counts what waits, over all nodes; 0 after close.
func (q *queue) len() (n int) {
	_ = q.db.View(func(tx *bbolt.Tx) error {
		return tx.Bucket(root).ForEachBucket(func(name []byte) error {
			n += count(tx.Bucket(root).Bucket(name))
			return nil
		})
	})
	return n
}

func count(b *bbolt.Bucket) (n int) {
	c := b.Cursor()
	for k, _ := c.First(); k != nil; k, _ = c.Next() {
		n++
	}
	return n
}

func (q *queue) close() error { return q.db.Close() }
