package main

import (
	"math/rand/v2"
	"os"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/laxity/laxity/actuator/journal"
	"github.com/laxity/laxity/actuator/webhook"
)

// Whenever the actuator is killed, before, during or after a pause, nothing
// stays stopped. LAXITY_TEST_KILLS says how often; 5 by default.
func TestKilledAtRandomMoments(t *testing.T) {
	kills := 5
	if v, err := strconv.Atoi(os.Getenv("LAXITY_TEST_KILLS")); err == nil {
		kills = v
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // not a secret
	n := newNode(t)
	ids := []string{n.tenant(), n.tenant(), n.tenant()}
	for i := range kills {
		n.start("--log.level=warn")
		n.contention(webhook.Firing)
		time.Sleep(time.Duration(r.IntN(80)) * time.Millisecond) // the moment is the point
		if err := n.cmd.Process.Signal(syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		_ = n.cmd.Wait()
		n.await("the guardian has ended", func() bool { return !journal.Taken(journal.GuardianLock(n.dir)) })
		if left := n.onRecord(); left != 0 {
			t.Fatalf("kill %d: %d on record", i, left)
		}
		for _, id := range ids {
			if n.docker.Paused(id) {
				t.Fatalf("kill %d: %.12s is stuck", i, id)
			}
		}
	}
}
