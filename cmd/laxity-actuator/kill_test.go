package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/laxity/laxity/actuator/journal"
	"github.com/laxity/laxity/actuator/webhook"
	"github.com/laxity/laxity/internal/process/processtest"
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
		// Nobody is left who would release one that is stuck. Docker may say "paused" a moment too
		// long: it learns of each pause from containerd as well, at times after the unpause.
		for _, id := range ids {
			n.await(fmt.Sprintf("%.12s runs after kill %d", id, i), func() bool { return !n.docker.Paused(id) })
		}
	}
}

// killBoth kills actuator and guardian at once: what they hold stands as it is.
func (n *node) killBoth() {
	n.Helper()
	var guardian int
	log := n.log.String()
	i := strings.LastIndex(log, "guardian started")
	if i < 0 {
		n.Fatal(log)
	}
	if _, err := fmt.Sscanf(log[i:], `guardian started" pid=%d`, &guardian); err != nil {
		n.Fatal(err, log)
	}
	// Stopped first, so that neither sees the other's end.
	both := []int{guardian, n.cmd.Process.Pid}
	for _, pid := range both {
		processtest.Stop(n, pid)
	}
	for _, pid := range both {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			n.Fatal(err)
		}
	}
	_ = n.cmd.Wait()
	n.await("the guardian is dead", func() bool { return !journal.Taken(journal.GuardianLock(n.dir)) })
}

// Actuator and guardian are killed at once, by a shortage of memory for instance. Whoever
// starts next undoes what they left before anything else.
func TestWhoStartsNextUndoesWhatBothLeft(t *testing.T) {
	n := newNode(t)
	n.tenant()
	b := n.tenant()
	for name, next := range map[string]func(){
		"an actuator that holds nobody": func() { n.start("--arbitrate=never") },
		"a guardian": func() {
			if out, err := exec.Command(n.binary, "guardian", "--once", "--state-dir="+n.dir).CombinedOutput(); err != nil { //nolint:gosec // our own program
				t.Errorf("%v\n%s", err, out)
			}
		},
	} {
		n.start()
		n.contention(webhook.Firing)
		n.awaitPaused(b, true)
		n.killBoth()
		if !n.docker.Paused(b) || n.onRecord() != 1 {
			t.Fatal("somebody released it: this tests nothing")
		}
		next()
		n.awaitPaused(b, false)
		n.await("nothing is on record after "+name, func() bool { return n.onRecord() == 0 })
		if name != "a guardian" {
			if err := n.cmd.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			_ = n.cmd.Wait()
			n.await("its guardian has ended", func() bool { return !journal.Taken(journal.GuardianLock(n.dir)) })
		}
	}
}
