package rm

import (
	"sync"
	"sync/atomic"
	"time"
)

// question is what info asks.
type question struct{ client, object, index uint32 }

type answer struct {
	value uint32
	err   error
}

const (
	// slowly is how long a question takes that has to wait. Most take 3 µs. Programs that start hold the
	// driver's lock for 10 ms at a time (an H100). Questions share it with each other.
	slowly = 500 * time.Microsecond
	// atOnce is how many questions of one file wait together, and atOnceOfAll of all files besides
	// one each: each takes a thread while it waits.
	atOnce, atOnceOfAll = 32, 64
)

// lender bounds the goroutines that ask for others.
type lender struct {
	mu  sync.Mutex
	out int
}

// take lends up to n goroutines. It does not wait.
func (l *lender) take(n int) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n = min(n, atOnceOfAll-l.out)
	l.out += n
	return n
}

func (l *lender) giveBack() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.out--
}

// ahead asks together the n questions that info is about to be asked, if the driver is slow now: else each one would
// wait. Info gives each answer once. While it has the first, nothing is asked. The driver may become slow in between,
// so say before each question which are left.
func (f *file) ahead(n int, is func(i int) question) {
	f.aheadThen(n, is, func(uint32) bool { return false })
}

// aheadThen is ahead, for questions of which some answers lead to another one: whose the object is.
func (f *file) aheadThen(n int, is func(i int) question, parent func(answer uint32) bool) {
	if !f.slow || n == 0 {
		return
	}
	if _, known := f.answers[is(0)]; known {
		return
	}
	answers, slow := make(map[question]answer, n), false
	var (
		mu   sync.Mutex
		next atomic.Int64
		wait sync.WaitGroup
	)
	work := func() {
		own := file{kernel: f.kernel, fd: f.fd}
		ask := func(q question) (a answer) {
			began := time.Now()
			a.err = recovered(func() (err error) {
				a.value, err = own.ask(q.client, q.object, q.index)
				return err
			})
			took := time.Since(began)
			mu.Lock()
			defer mu.Unlock()
			answers[q], slow = a, slow || took > slowly
			return a
		}
		for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
			q := is(i)
			if a := ask(q); a.err == nil && parent(a.value) {
				ask(question{q.client, q.object, indexParent})
			}
		}
	}
	for range f.lent.take(min(atOnce, n) - 1) {
		wait.Go(func() {
			defer f.lent.giveBack()
			work()
		})
	}
	work()
	wait.Wait()
	f.answers, f.slow = answers, slow
}
