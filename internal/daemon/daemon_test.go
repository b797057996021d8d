package daemon_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/laxity/laxity/internal/daemon"
)

const daemonAddress = "LAXITY_TEST_DAEMON"

// The daemon of these tests is this program: it serves at an address, or says why
// it does not.
func TestMain(m *testing.M) {
	address, ok := os.LookupEnv(daemonAddress)
	switch {
	case !ok:
		os.Exit(m.Run())
	case address == "":
		fmt.Println("no address")
		os.Exit(3)
	}
	fmt.Println("serving")
	panic(http.ListenAndServe(address, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))) //nolint:gosec // of a test
}

func TestDaemon(t *testing.T) {
	free, err := daemon.FreeAddresses(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv(daemonAddress, free[0])
	d, err := daemon.Start(t.Context(), t.TempDir(), free[0], os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(d.Said(), "serving") {
		t.Errorf("said %q", d.Said())
	}
	if err := d.Stop(); err != nil {
		t.Error(err)
	}
	<-d.Ended()
}

// An address that was given but is not used yet is not given again by this process.
func TestFreeAddressesDiffer(t *testing.T) {
	given := map[string]bool{}
	for range 50 {
		free, err := daemon.FreeAddresses(t.Context(), 2)
		if err != nil {
			t.Fatal(err)
		}
		for _, address := range free {
			if given[address] {
				t.Errorf("%s was given twice", address)
			}
			given[address] = true
		}
	}
}

func TestDaemonThatEndsAtOnce(t *testing.T) {
	t.Setenv(daemonAddress, "")
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second) // less than is waited for one that lives
	defer cancel()
	_, err := daemon.Start(ctx, t.TempDir(), "127.0.0.1:1", os.Args[0])
	if err == nil || !strings.Contains(err.Error(), "no address") || ctx.Err() != nil {
		t.Errorf("%v; want what it said, at once", err)
	}
}
