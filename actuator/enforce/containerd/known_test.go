package containerd

import (
	"fmt"
	"testing"
)

// Many short containers each end without being asked about again: what is remembered stays bounded.
func TestShortContainersAreForgotten(t *testing.T) {
	c := &calls{known: map[string]known{}}
	for n := range 5000 {
		id := fmt.Sprint(n)
		c.remember(id, known{namespace: "default"})
		if c.known[id].namespace != "default" || len(c.known) > most {
			t.Fatalf("after %d: %d are remembered, the last one is %+v", n+1, len(c.known), c.known[id])
		}
	}
}
