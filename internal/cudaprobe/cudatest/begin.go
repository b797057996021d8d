package cudatest

import (
	"fmt"
	"time"
)

// Begin calls a function of the library and returns at once; the call may be held
// at its entry. What is returned waits for its end.
func (p *Program) Begin(name string) func() Called { p.t.Helper(); return p.begin("call " + name) }

// BeginThread is Begin from a new thread.
func (p *Program) BeginThread(name string) func() Called {
	p.t.Helper()
	return p.begin("thread " + name)
}

func (p *Program) begin(line string) func() Called {
	p.t.Helper()
	p.say(line)
	return func() Called {
		p.t.Helper()
		answer, err := p.stdout.ReadString('\n')
		if err != nil {
			p.t.Fatal("the program is gone:", err)
		}
		var name string
		var before, after int64
		if _, err := fmt.Sscan(answer, &name, &before, &after); err != nil {
			p.t.Fatalf("the program said %q: %v", answer, err)
		}
		return Called{time.Unix(0, before), time.Unix(0, after)}
	}
}
