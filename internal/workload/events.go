package workload

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"math"
	"time"
)

// Event is one line of the program's time line.
type Event struct {
	Time time.Time
	Name string // start, init, context, …: see matmul --help
	PID  int    // as the program sees it: 1 in a container
	Task int    // number of the task, from 0, where the event belongs to one
	Text string // the whole line
}

// Events reads the time line that the program prints, and skips other lines. It ends with the
// stream, or with the first error.
func Events(r io.Reader) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		lines := bufio.NewScanner(r)
		for lines.Scan() {
			if !bytes.HasPrefix(lines.Bytes(), []byte("{")) {
				continue
			}
			event, err := parseEvent(lines.Bytes())
			if !yield(event, err) || err != nil {
				return
			}
		}
		if err := lines.Err(); err != nil {
			yield(Event{}, err)
		}
	}
}

func parseEvent(line []byte) (Event, error) {
	var raw struct {
		Time  float64 `json:"time"` // Unix seconds; a float holds them to the microsecond
		Event string  `json:"event"`
		PID   int     `json:"pid"`
		Task  int     `json:"task"`
	}
	if err := json.Unmarshal(line, &raw); err != nil {
		return Event{}, fmt.Errorf("time line: %w in %q", err, line)
	}
	return Event{
		Time: time.UnixMicro(int64(math.Round(raw.Time * 1e6))),
		Name: raw.Event, PID: raw.PID, Task: raw.Task, Text: string(line),
	}, nil
}
