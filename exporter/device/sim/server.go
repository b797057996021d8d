package sim

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"time"
)

const (
	maxConns     = 4096             // a process has two
	helloTimeout = 10 * time.Second // to say who one is; afterwards a tenant may be silent for ever
)

// Serve answers the protocol (see protocol.go) to everybody who connects to l, a
// unix socket, until ctx ends. Tenants that are connected then have ended. It
// returns nil when ctx ended, else why it could not go on accepting.
func (g *GPU) Serve(ctx context.Context, l net.Listener) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer l.Close()
	defer context.AfterFunc(ctx, func() { l.Close() })()
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	slots := make(chan struct{}, maxConns)
	for {
		conn, err := l.Accept()
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			var temporary interface{ Temporary() bool }
			if errors.As(err, &temporary) && temporary.Temporary() { // out of file descriptors: others will end
				time.Sleep(10 * time.Millisecond)
				continue
			}
			return fmt.Errorf("simulated GPU: accept: %w", err)
		}
		select {
		case slots <- struct{}{}:
		default:
			fmt.Fprintf(conn, "err busy more than %d connections\n", maxConns)
			conn.Close()
			continue
		}
		wg.Go(func() {
			defer func() { <-slots }()
			g.serveConn(ctx, conn)
		})
	}
}

func (g *GPU) serveConn(ctx context.Context, conn net.Conn) {
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	s := session{gpu: g, conn: conn, lines: bufio.NewReaderSize(conn, maxLine)}
	if err := s.run(ctx); err != nil && ctx.Err() == nil {
		g.opts.Logger.Debug("connection ended", "err", err)
	}
}

// session is one connection.
type session struct {
	gpu   *GPU
	conn  net.Conn
	lines *bufio.Reader
}

func (s *session) run(ctx context.Context) error {
	if err := s.conn.SetReadDeadline(time.Now().Add(helloTimeout)); err != nil {
		return err
	}
	line, err := s.readLine()
	if err != nil {
		return err
	}
	if err := s.conn.SetReadDeadline(time.Time{}); err != nil {
		return err
	}
	words := strings.Fields(line)
	switch {
	case len(words) != 3 || words[0] != greeting:
		err = fmt.Errorf("%w: the first line must be %q", errProtocol, greeting+" "+version+" tenant|monitor|agent|manager")
	case words[1] != version:
		err = fmt.Errorf("%w: version %.10q is not spoken here, %s is", errProtocol, words[1], version)
	case words[2] == "tenant":
		return s.tenant(ctx)
	case words[2] == "monitor":
		return s.monitor(ctx)
	case words[2] == "agent":
		return s.agent(ctx)
	case words[2] == "manager":
		return s.manager(ctx)
	default:
		err = fmt.Errorf("%w: neither tenant, monitor, agent nor manager: %.20q", errProtocol, words[2])
	}
	return errors.Join(err, s.reply("", err))
}

// tenant serves the process at the other end until it hangs up or exits.
func (s *session) tenant(ctx context.Context) error {
	peer, err := peerOf(s.conn)
	if err != nil {
		return errors.Join(err, s.reply("", err))
	}
	defer peer.Close()
	p := s.gpu.attach(Tenant{PID: peer.PID, Start: peer.start})
	defer p.Detach()
	if peer.asksFor(EnvMPS) {
		p.UseMPS()
	}
	// A call that waits for an unlock must not outlast the server.
	defer context.AfterFunc(ctx, p.Exit)()

	mayManage := peer.mayManage()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go s.follow(ctx, peer, p)
	if err := s.reply(fmt.Sprint(len(s.gpu.units)), nil); err != nil {
		return err
	}
	for {
		line, err := s.readLine()
		if err != nil {
			return err
		}
		text, err := answer(ctx, p, line, mayManage)
		if err := s.reply(text, err); err != nil {
			return err
		}
		if errors.Is(err, errProtocol) || errors.Is(err, ErrExited) {
			return err
		}
	}
}

// follow ends the session with the process at the other end. A child may hold the
// connection open after its parent died: the end of the process counts.
func (s *session) follow(ctx context.Context, other *peer, p *Process) {
	if other.Wait(ctx) == nil {
		p.Exit()
		s.conn.Close()
	}
}

// agent asks the process at the other end to do what its own threads have to do.
func (s *session) agent(ctx context.Context) error {
	peer, err := peerOf(s.conn)
	if err != nil {
		return errors.Join(err, s.reply("", err))
	}
	defer peer.Close()
	p := s.gpu.Attach(peer.PID)
	defer p.Detach()
	a := p.addAgent()
	defer p.removeAgent(a)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go s.follow(ctx, peer, p)
	if err := s.reply("", nil); err != nil {
		return err
	}
	for {
		select {
		case done := <-a.asked:
			if _, err := io.WriteString(s.conn, "turn\n"); err != nil {
				return err
			}
			if _, err := s.readLine(); err != nil {
				return err
			}
			close(done)
		case <-p.Exited():
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// monitor serves readings.
func (s *session) monitor(ctx context.Context) error {
	if err := s.reply("", nil); err != nil {
		return err
	}
	loads := -1
	cards := s.gpu.newCardReader()
	for {
		line, err := s.readLine()
		if err != nil {
			return err
		}
		var answer any
		switch strings.TrimSpace(line) {
		case "read":
			r, err := s.gpu.read(ctx, &loads)
			w := toWire(r)
			if err != nil {
				w = wireReading{Error: err.Error()}
			}
			answer = w
		case "cards":
			r, err := cards.read(ctx)
			w := wireCards{CardReading: r}
			if err != nil {
				w = wireCards{Error: err.Error()}
			}
			answer = w
		default:
			err := fmt.Errorf("%w: a monitor asks \"read\" or \"cards\"", errProtocol)
			return errors.Join(err, s.reply("", err))
		}
		text, err := json.Marshal(answer)
		if err != nil {
			return err
		}
		if err := s.reply(string(text), nil); err != nil {
			return err
		}
	}
}

// readLine returns the next line without its end. A line that is too long is
// answered and ends the connection.
func (s *session) readLine() (string, error) {
	line, err := s.lines.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		err = fmt.Errorf("%w: line longer than %d bytes", errProtocol, maxLine)
		return "", errors.Join(err, s.reply("", err))
	}
	if err != nil {
		return "", err
	}
	return strings.TrimRight(string(line), "\r\n"), nil
}

// reply writes "ok text", or err in the protocol's words.
func (s *session) reply(text string, err error) error {
	line := strings.TrimRight("ok "+text, " ")
	if err != nil {
		line = "err " + errorCode(err) + " " + strings.ReplaceAll(err.Error(), "\n", " ")
	}
	_, err = io.WriteString(s.conn, line+"\n")
	return err
}
