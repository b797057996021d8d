package cache_test

import (
	"fmt"
	"testing"

	"github.com/laxity/laxity/internal/cache"
)

func TestCache(t *testing.T) {
	c := &cache.Cache[int]{}
	if _, ok := c.Get("a"); ok {
		t.Error("an empty one remembers")
	}
	for n := range 3 * cache.Most {
		id := fmt.Sprint(n)
		c.Put(id, n)
		if v, ok := c.Get(id); !ok || v != n || c.Len() > cache.Most {
			t.Fatalf("after %d: %d, %v; %d are remembered", n+1, v, ok, c.Len())
		}
	}
	c.Put("a", 1)
	c.Forget("a")
	if v, ok := c.Get("a"); ok {
		t.Errorf("remembers %d, which was forgotten", v)
	}
	var none *cache.Cache[int]
	none.Put("a", 1)
	none.Forget("a")
	if _, ok := none.Get("a"); ok || none.Len() != 0 {
		t.Error("a nil one remembers")
	}
}
