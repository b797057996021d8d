package gate

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/laxity/laxity/actuator/enforce/proc"
	"github.com/laxity/laxity/internal/cudaprobe"
)

// Name is the name of the record of the actuator with this state folder.
func Name(stateDir string) string {
	if abs, err := filepath.Abs(stateDir); err == nil {
		stateDir = abs
	}
	sum := sha256.Sum256([]byte(stateDir))
	return "laxity-" + hex.EncodeToString(sum[:8])
}

// LetGoOptions of LetGo. Name is required.
type LetGoOptions struct {
	Name string
	Proc string // /proc by default
	// IfExpired lets go only if nobody has renewed the gate in time.
	IfExpired bool
}

// after is for how long LetGo looks again: a program that looked at the gate
// before it was opened may stop its process a moment later.
const after = 30 * time.Millisecond

// LetGo opens the gate of this name and continues everybody on its record. It
// returns when nobody is on record who is still stopped, or when ctx ends, with
// the number of processes it continued. It needs no Gate, and does nothing where
// there never was one. Doing it twice does no harm.
func LetGo(ctx context.Context, o LetGoOptions) (continued int, err error) {
	if o.Proc == "" {
		o.Proc = "/proc"
	}
	record, err := cudaprobe.OpenRecord(cudaprobe.PinFolder(o.Name))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	defer record.Close()
	if o.IfExpired {
		if expired, err := record.Expired(); err != nil || !expired {
			return 0, err
		}
	} else if err := record.Open(); err != nil {
		return 0, err
	}
	opened, sent := time.Now(), map[cudaprobe.HeldProcess]bool{}
	for {
		left, err := sweep(record, o.Proc, sent)
		continued = len(sent)
		if err != nil || (left == 0 && (o.IfExpired || time.Since(opened) >= after)) {
			return continued, err
		}
		select {
		case <-ctx.Done():
			return continued, ctx.Err()
		case <-time.After(time.Millisecond):
		}
	}
}

// sweep continues those on record. One that was continued and does not look
// stopped is taken off. How a process looks does not say that it need not be
// continued: one that is frozen too looks frozen.
func sweep(record *cudaprobe.Record, folder string, sent map[cudaprobe.HeldProcess]bool) (left int, err error) {
	held, err := record.List()
	for _, h := range held {
		h.Since = time.Time{} // as a key: it is computed anew each time
		pidfd, perr := unix.PidfdOpen(h.PID, 0)
		if perr != nil {
			err = errors.Join(err, record.Forget(h.PID)) // gone
			continue
		}
		s, ok := proc.ReadStat(folder, h.PID)
		switch {
		case !ok, !s.Began(h.Start), sent[h] && s.State != 'T':
			err = errors.Join(err, record.Forget(h.PID))
		default:
			left++
			serr := unix.PidfdSendSignal(pidfd, unix.SIGCONT, nil, 0)
			if sent[h] = serr == nil; serr != nil && !errors.Is(serr, unix.ESRCH) {
				err = errors.Join(err, serr)
			}
		}
		_ = unix.Close(pidfd)
	}
	return left, err
}

// Forget removes the record of this name. Nobody must be on it.
func Forget(name string) error { return cudaprobe.RemoveRecord(cudaprobe.PinFolder(name)) }
