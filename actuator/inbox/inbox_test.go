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

func TestInbox(t *testing.T) {
	path := filepath.Join(t.TempDir(), "inbox.db")
	in, err := inbox.Open(path, 3)
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
	if _, err := inbox.Open(path, 3); err == nil || !strings.Contains(err.Error(), "another actuator") {
		t.Errorf("opened twice: %v", err)
	}

	// A restart loses nothing, and what was not removed comes again, in order.
	if e, ok, err := in.Peek(); !ok || err != nil || string(e.Payload) != "0" || !e.Received.Equal(now) {
		t.Errorf("%+v %v %v", e, ok, err)
	}
	if err := in.Close(); err != nil {
		t.Fatal(err)
	}
	if err := in.Put(nil, now); err == nil {
		t.Error("a closed inbox took a message")
	}
	if in, err = inbox.Open(path, 3); err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	<-in.Ready()
	for i := range 3 {
		e, ok, err := in.Peek()
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
	if _, ok, err := in.Peek(); ok || err != nil {
		t.Errorf("not empty: %v %v", ok, err)
	}
}
