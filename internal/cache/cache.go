// Package cache remembers what was found of containers, by their ids, and of files of containers.
//
// It imports the standard library only.
package cache

import "sync"

// Most is how many containers are remembered, more than a node has. One that ended is forgotten only if
// its user finds that out. So all are forgotten at times, and those that are there are found again.
const Most = 1000

// Cache is safe for concurrent use. The zero value is empty; a nil one remembers nothing.
type Cache[V any] struct {
	mu sync.Mutex
	by map[string]V
}

// Get returns what is remembered of a container.
func (c *Cache[V]) Get(id string) (v V, ok bool) {
	if c == nil {
		return v, false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	v, ok = c.by[id]
	return v, ok
}

// Put remembers v. It first forgets all if there are Most already.
func (c *Cache[V]) Put(id string, v V) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.by == nil || len(c.by) >= Most {
		c.by = map[string]V{}
	}
	c.by[id] = v
}

// Forget forgets a container.
func (c *Cache[V]) Forget(id string) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.by, id)
}

// Len is how many are remembered.
func (c *Cache[V]) Len() int {
	if c == nil {
		return 0
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.by)
}
