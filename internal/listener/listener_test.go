package listener

import (
	"errors"
	"net"
	"os"
	"slices"
	"testing"
)

func TestUsersOnAPort(t *testing.T) {
	const table = `  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:268E 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 31337 1 0000000000000000 100 0 0 10 0
   1: 0100007F:268F 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 31338 1 0000000000000000 100 0 0 10 0
   2: 0100007F:268E 0100007F:D431 01 00000000:00000000 00:00000000 00000000  1001        0 31339 1 0000000000000000 100 0 0 10 0
   3: 00000000000000000000000001000000:268F 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000 00000000 65534 0 1 1
   4: broken
`
	for port, want := range map[int][]int{9870: {0}, 9871: {1000, 65534}, 9872: nil} {
		if got := usersOn(table, port); !slices.Equal(got, want) {
			t.Errorf("port %d: %v, want %v", port, got, want)
		}
	}
}

// Who holds a port of this machine is believed only if it is one of those who may; elsewhere there is nothing
// to compare.
func TestDialBelievesOnlySome(t *testing.T) {
	for _, address := range []string{"127.0.0.1:0", "[::1]:0", ":0"} {
		l, err := net.Listen("tcp", address)
		if err != nil {
			if address == "[::1]:0" {
				continue // a machine without IPv6
			}
			t.Fatal(err)
		}
		defer l.Close()
		me := os.Geteuid()
		users, err := Users(l.Addr().(*net.TCPAddr).Port)
		if err != nil || !slices.Equal(users, []int{me}) {
			t.Errorf("%s: %v listen, %v; want %d", address, users, err, me)
		}
		conn, err := dial(t.Context(), "tcp", l.Addr().String(), me)
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.Close()
		var stranger *StrangerError
		if conn, err := dial(t.Context(), "tcp", l.Addr().String(), me+1); !errors.As(err, &stranger) || conn != nil || !slices.Equal(stranger.Users, []int{me}) {
			t.Errorf("%s, of somebody else: %v, %v", address, conn, err)
		}
	}
}

// A listener that has gone is not believed: its port may be anybody's next.
func TestDialBelievesNobodyWhoHasGone(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := believe(conn, []int{os.Geteuid()}); err != nil {
		t.Fatal(err)
	}
	_ = l.Close()
	if err := believe(conn, []int{os.Geteuid()}); err == nil {
		t.Error("it is believed")
	}
}
