package scale

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/laxity/laxity/bench"
)

// answer is what a node of P2 sends: its state (1 byte), float time (10) and
// memory use (5).
const answer = 16

// atOnce is how many nodes the master asks at the same time.
const atOnce = 64

// measureAsked is P2's master: it asks every node on a connection of its own.
func measureAsked(ctx context.Context, _ bench.Env, f *fleetOf) ([]bench.Row, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	var serving sync.WaitGroup
	serving.Go(func() { workers(listener) })
	defer serving.Wait()
	defer listener.Close() // nobody needs it any more
	times := min(f.decisions, max(bench.FewestForP99, 20_000/f.nodes))
	var rows []bench.Row
	for range times {
		begin := time.Now()
		found, err := ask(ctx, listener.Addr().String(), f.nodes)
		if err != nil {
			return rows, err
		}
		rows = append(rows, bench.Row{"kind": "decision", "seconds": time.Since(begin).Seconds(), "found": found})
	}
	return rows, nil
}

// workers answer for all nodes with dummy data, as in the paper.
func workers(listener net.Listener) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		go func() {
			defer conn.Close() // the master has closed it
			var out [answer]byte
			if _, err := io.ReadFull(conn, out[:1]); err != nil {
				return
			}
			out[0] = 1
			port := conn.RemoteAddr().(*net.TCPAddr).Port
			binary.LittleEndian.PutUint64(out[1:], math.Float64bits(float64(port%120)))
			binary.LittleEndian.PutUint32(out[11:], uint32(port))
			_, _ = conn.Write(out[:])
		}()
	}
}

type reply struct {
	state  byte
	float  float64
	memory uint32
}

// ask is Algorithm 2 on the master: every node's reply, sorted by memory, the
// first one that has the time.
func ask(ctx context.Context, address string, nodes int) (found bool, err error) {
	replies := make([]reply, nodes)
	errs := make([]error, atOnce)
	var asking sync.WaitGroup
	for w := range atOnce {
		asking.Go(func() {
			for i := w; i < nodes && errs[w] == nil; i += atOnce {
				replies[i], errs[w] = askOne(ctx, address)
			}
		})
	}
	asking.Wait()
	if err := errors.Join(errs...); err != nil {
		return false, err
	}
	slices.SortFunc(replies, func(a, b reply) int { return cmp.Compare(b.memory, a.memory) })
	return slices.ContainsFunc(replies, func(r reply) bool { return r.state == 1 && r.float > 9 }), nil
}

func askOne(ctx context.Context, address string) (reply, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return reply{}, err
	}
	defer conn.Close() // the reply is complete
	// Closed connections would keep their ports for a minute.
	if err := conn.(*net.TCPConn).SetLinger(0); err != nil {
		return reply{}, err
	}
	var in [answer]byte
	if _, err := conn.Write(in[:1]); err != nil {
		return reply{}, err
	}
	if _, err := io.ReadFull(conn, in[:]); err != nil {
		return reply{}, err
	}
	return reply{in[0], math.Float64frombits(binary.LittleEndian.Uint64(in[1:])), binary.LittleEndian.Uint32(in[11:])}, nil
}
