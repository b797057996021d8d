package containerd

import (
	"fmt"
	"testing"

	"github.com/laxity/laxity/internal/cache"
)

// Many short containers each end without being asked about again: what is remembered stays bounded.
func TestShortContainersAreForgotten(t *testing.T) {
	c := &calls{known: &cache.Cache[known]{}}
	for n := range 5000 {
		id := fmt.Sprint(n)
		c.known.Put(id, known{namespace: "default"})
		if last, _ := c.known.Get(id); last.namespace != "default" || c.known.Len() > cache.Most {
			t.Fatalf("after %d: %d are remembered, the last one is %+v", n+1, c.known.Len(), last)
		}
	}
}
