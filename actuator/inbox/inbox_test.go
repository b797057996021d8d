package inbox_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/laxity/laxity/actuator/inbox"
)

var three = inbox.Bounds{Messages: 3, Bytes: 1 << 20}

func TestInbox(t *testing.T) {
	path := filepath.Join(t.TempDir(), "inbox.db")
	in, _, err := inbox.Open(path, three)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	for i := range 3 {
		if err := in.Put([]byte(fmt.Sprint(i)), now); err != nil {
			t.Fatal(err)
		}
	}
	if err := in.Put([]byte("one too many"), now); !errors.Is(err, inbox.ErrFull) {
		t.Errorf("error %v", err)
	}
	<-in.Ready()
	if _, _, err := inbox.Open(path, three); err == nil || !strings.Contains(err.Error(), "another actuator") {
		t.Errorf("opened twice: %v", err)
	}

	// A restart loses nothing, and what was not removed comes again, in order.
	if e, ok, err := in.After(0); !ok || err != nil || string(e.Payload) != "0" || !e.Received.Equal(now) {
		t.Errorf("%+v %v %v", e, ok, err)
	}
	if err := in.Close(); err != nil {
		t.Fatal(err)
	}
	if err := in.Put(nil, now); err == nil {
		t.Error("a closed inbox took a message")
	}
	if in, _, err = inbox.Open(path, three); err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	<-in.Ready()
	for i := range 3 {
		e, ok, err := in.After(0)
		if !ok || err != nil || string(e.Payload) != fmt.Sprint(i) {
			t.Fatalf("%d: %+v %v %v", i, e, ok, err)
		}
		if in.Len() != 3-i {
			t.Errorf("length %d", in.Len())
		}
		if err := in.Remove(e.ID); err != nil {
			t.Fatal(err)
		}
	}
	if _, ok, err := in.After(0); ok || err != nil {
		t.Errorf("not empty: %v %v", ok, err)
	}

	// Several are read one after another and leave together; one that came meanwhile stays.
	for i := range 3 {
		if err := in.Put([]byte(fmt.Sprint(i)), now); err != nil {
			t.Fatal(err)
		}
	}
	first, _, _ := in.After(0)
	second, ok, err := in.After(first.ID)
	if err := errors.Join(err, in.Remove(second.ID)); !ok || err != nil || string(second.Payload) != "1" {
		t.Fatalf("%+v %v %v", second, ok, err)
	}
	if e, ok, err := in.After(0); !ok || err != nil || string(e.Payload) != "2" || in.Len() != 1 {
		t.Errorf("%+v %v %v, length %d", e, ok, err, in.Len())
	}
}

// Few large messages fill the disk as many small ones do: bytes are bounded too, over
// a restart, and room comes back with what is removed.
func TestBytesAreBounded(t *testing.T) {
	path, most := filepath.Join(t.TempDir(), "inbox.db"), inbox.Bounds{Messages: 1000, Bytes: 10_000}
	in, _, err := inbox.Open(path, most)
	if err != nil {
		t.Fatal(err)
	}
	put := func(size int) error { return in.Put(make([]byte, size), time.Now()) }
	if err := errors.Join(put(4000), put(4000)); err != nil {
		t.Fatalf("within the bound: %v", err)
	}
	if err := put(4000); !errors.Is(err, inbox.ErrFull) {
		t.Errorf("beyond the bound: %v", err)
	}
	if err := in.Close(); err != nil {
		t.Fatal(err)
	}
	if in, _, err = inbox.Open(path, most); err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	if err := put(4000); !errors.Is(err, inbox.ErrFull) || in.Len() != 2 {
		t.Errorf("beyond the bound after a restart: %v, %d messages", err, in.Len())
	}
	e, _, err := in.After(0)
	if err := errors.Join(err, in.Remove(e.ID), in.Remove(e.ID), put(4000)); err != nil {
		t.Errorf("no room for as much as was removed: %v", err)
	}
	if err := put(20_000); !errors.Is(err, inbox.ErrFull) {
		t.Errorf("larger than all: %v", err)
	}
}
