// Package evaluator is Prometheus inside the process, for `laxity up`: it gathers metrics from
// registries in the same process, appends them to a time series database, evaluates rules files
// right after, and delivers alerts as Alertmanager would post them. It evaluates the rules files of
// a Prometheus server with Prometheus's own code, so one machine and a fleet behave alike; only
// scraping, and the wait for it, is missing.
//
// It is the only package that links prometheus/prometheus (25 MB), and therefore
// stays internal to cmd/laxity. Of Laxity it imports actuator/webhook, for the
// message.
package evaluator

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/model"
	"github.com/prometheus/common/promslog"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/rules"
	"github.com/prometheus/prometheus/tsdb"

	"github.com/laxity/laxity/actuator/webhook"
)

// Defaults of Options.
const (
	DefaultInterval = 100 * time.Millisecond
	DefaultResend   = 2 * time.Second
	// DefaultRetention is more than the longest range of a rule, 1 h.
	DefaultRetention = 80 * time.Minute
	// CalmInterval is the time between evaluations while Options.Calm says so.
	CalmInterval = time.Second
)

// ErrClosed is returned by Evaluate, Query and Reload after Close.
var ErrClosed = errors.New("evaluator is closed")

// Target is one set of metrics, as a scrape configuration has them.
type Target struct {
	Gatherer prometheus.Gatherer
	// Job, Instance and Node become the target labels; an empty one is left out.
	// Rules and alerts need job="laxity-exporter" and a node.
	Job, Instance, Node string
}

// Options configure an Evaluator.
type Options struct {
	Targets []Target
	// Rules holds rules files: every *.yml in its root.
	Rules fs.FS
	// RuleFiles are the paths of further ones.
	RuleFiles []string
	// Interval is the time between evaluations; 0 is DefaultInterval.
	Interval time.Duration
	// Calm reports whether nothing goes on that a rule could act on. Then evaluations are
	// CalmInterval apart, or Interval if that is longer: they take CPU time from the tenants. Nil:
	// never.
	Calm func() bool
	// Wake signals that Calm may have changed: the next evaluation is then due as if it had not been
	// calm. May be nil.
	Wake <-chan struct{}
	// Resend is how often a firing alert is notified again, which renews the lease that it opened in
	// the actuator; 0 is DefaultResend.
	Resend time.Duration
	// Retention is how long samples are kept, at least; 0 is DefaultRetention.
	Retention time.Duration
	// Dir is the folder of the samples, which nobody else uses: New empties it, for one that was killed
	// removed nothing, and Close removes it. Empty: one in TMPDIR.
	Dir string
	// Notify takes one alert per message, like Alertmanager with group_by
	// ['...']. It is called from one goroutine of Run, never from within an
	// evaluation. After an error the alert's latest status is sent again. Nil: no
	// notifications.
	Notify func(context.Context, webhook.Message) error
	Logger *slog.Logger
	// Now is the clock; nil is time.Now.
	Now func() time.Time
}

// Evaluator gathers, evaluates, notifies and answers queries.
type Evaluator struct {
	opts   Options
	parser parser.Parser
	promql *promql.Engine
	rules  rules.ManagerOptions
	outbox *outbox

	// life is held for reading by users of the database, for writing by Close.
	life   sync.RWMutex
	closed bool
	db     *tsdb.DB
	dir    string

	mu            sync.Mutex // serialises evaluations
	targets       []*target
	groups        []*rules.Group
	notifications notifications
	last          int64     // the latest timestamp written, Unix milliseconds
	evaluated     time.Time // when, by Options.Now
	timing        Timing

	// whole is the time up to which all is written, Unix milliseconds: that of the latest evaluation
	// that is over.
	whole atomic.Int64
	// first is closed after the first evaluation, and by Close.
	first     chan struct{}
	firstOnce sync.Once
}

// New opens the database and loads the rules. A rules file that does not parse is an error
// that names file and line. Close, or Run, closes everything.
func New(opts Options) (*Evaluator, error) {
	opts = withDefaults(opts)
	if len(opts.Targets) == 0 {
		return nil, errors.New("evaluator: no target: give at least one gatherer")
	}
	e := &Evaluator{opts: opts, parser: parser.NewParser(parser.Options{}), outbox: newOutbox(), notifications: notifications{}, first: make(chan struct{})}
	for _, t := range opts.Targets {
		e.targets = append(e.targets, newTarget(t))
	}
	// Before the database is opened: a bad rules file leaves nothing behind.
	parsed, err := readRules(opts.Rules, opts.RuleFiles, e.parser, opts.Logger)
	if err != nil {
		return nil, err
	}
	if err := e.open(); err != nil {
		return nil, err
	}
	if e.groups, err = parsed.groups(e.rules, opts.Interval); err != nil {
		return nil, errors.Join(err, e.Close())
	}
	return e, nil
}

func withDefaults(opts Options) Options {
	if opts.Interval <= 0 {
		opts.Interval = DefaultInterval
	}
	if opts.Resend <= 0 {
		opts.Resend = DefaultResend
	}
	if opts.Retention <= 0 {
		opts.Retention = DefaultRetention
	}
	if opts.Logger == nil {
		opts.Logger = promslog.NewNopLogger()
	}
	if opts.Now == nil {
		opts.Now = time.Now
	}
	return opts
}

func (e *Evaluator) open() (err error) {
	e.dir = e.opts.Dir
	if e.dir == "" {
		if e.dir, err = os.MkdirTemp("", "laxity-evaluator-"); err != nil {
			return fmt.Errorf("evaluator: no folder for samples: %w; set TMPDIR to a writable one", err)
		}
	} else if err = os.RemoveAll(e.dir); err != nil {
		return fmt.Errorf("evaluator: empty the folder of the samples: %w", err)
	}
	e.db, err = tsdb.Open(e.dir, slog.New(troubles{e.opts.Logger.Handler()}), nil, dbOptions(e.opts.Retention), nil)
	if err != nil {
		return errors.Join(fmt.Errorf("evaluator: open the samples in %s: %w", e.dir, err), os.RemoveAll(e.dir))
	}
	e.promql = promql.NewEngine(promql.EngineOpts{
		Logger:               e.opts.Logger,
		Parser:               e.parser,
		MaxSamples:           50_000_000,
		Timeout:              10 * time.Second,
		EnableAtModifier:     true,
		EnableNegativeOffset: true,
	})
	e.rules = rules.ManagerOptions{
		QueryFunc:  rules.EngineQueryFunc(e.promql, e.db),
		NotifyFunc: func(context.Context, string, ...*rules.Alert) {}, // notifications are made from the rules' states instead
		Appendable: e.db,
		Queryable:  e.db,
		Logger:     e.opts.Logger,
		Parser:     e.parser,
	}
	return nil
}

// mostBlock bounds the block. The database holds up to one and a half in memory: with 30 min that was
// 0.3 GiB under load.
const mostBlock = 10 * time.Minute

// dbOptions keep the database small: one machine's series, an hour or so.
func dbOptions(retention time.Duration) *tsdb.Options {
	o := tsdb.DefaultOptions()
	o.RetentionDuration = retention.Milliseconds()
	block := min(retention/4, mostBlock).Milliseconds()
	o.MinBlockDuration, o.MaxBlockDuration = block, block
	o.StripeSize = 1 << 10
	o.HeadChunksWriteQueueSize = 0
	o.WALSegmentSize = -1 // nothing reads it
	return o
}

// Run evaluates every Interval, or less often while Options.Calm says so, and delivers
// notifications until ctx ends. Then it closes the evaluator. It returns nil after ctx ended.
func (e *Evaluator) Run(ctx context.Context) error {
	var delivery sync.WaitGroup
	if e.opts.Notify != nil {
		delivery.Go(func() { e.outbox.deliver(ctx, e.opts.Notify, e.opts.Logger) })
	}
	var err error
	for err == nil {
		began := time.Now()
		if err = e.Evaluate(ctx); err != nil {
			break
		}
		err = e.wait(ctx, began)
	}
	if ctx.Err() != nil {
		err = nil
	}
	delivery.Wait()
	return errors.Join(err, e.Close())
}

// wait returns when the next evaluation is due. Two are never closer together than Interval,
// however often Wake fires.
func (e *Evaluator) wait(ctx context.Context, began time.Time) error {
	interval, wake := e.opts.Interval, (<-chan struct{})(nil)
	if e.opts.Calm != nil && e.opts.Calm() {
		interval, wake = max(interval, CalmInterval), e.opts.Wake
	}
	due := time.NewTimer(interval - time.Since(began))
	defer due.Stop()
	for {
		select {
		case <-due.C:
			return nil
		case <-wake:
			due.Reset(e.opts.Interval - time.Since(began))
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Evaluate gathers, appends and evaluates the rules once, now: call it when something has changed,
// instead of waiting for the next interval. It may be called at any time and from several
// goroutines. Problems of a target or a rule are logged and shown (up, the rule's health); an error
// means that the evaluator is closed or cannot write.
func (e *Evaluator) Evaluate(ctx context.Context) error {
	e.life.RLock()
	defer e.life.RUnlock()
	if e.closed {
		return ErrClosed
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	now := e.opts.Now()
	ts := stamp(e.last, now.Sub(e.evaluated), now)
	e.evaluated = now
	e.last = ts.UnixMilli()
	begin := time.Now()
	if err := e.ingest(ctx, ts); err != nil {
		return err
	}
	e.timing.Ingest = time.Since(begin)
	for _, g := range e.groups {
		g.Eval(ctx, ts)
	}
	e.timing.Rules = time.Since(begin) - e.timing.Ingest
	e.whole.Store(ts.UnixMilli())
	e.firstOnce.Do(func() { close(e.first) })
	if ctx.Err() == nil { // else an interrupted evaluation would look like resolved alerts
		e.outbox.put(e.notifications.update(ts, firing(e.groups), e.opts.Resend)...)
	}
	return nil
}

// stamp is the time of an evaluation that comes so long after the last one. Samples have
// millisecond timestamps, which must increase. Where the clock was set back the rules' time goes on from
// where it was, as fast as before: what an alert waits for must pass.
func stamp(last int64, passed time.Duration, now time.Time) time.Time {
	if ms := now.UnixMilli(); ms > last {
		return time.UnixMilli(ms)
	}
	return time.UnixMilli(last + max(passed.Milliseconds(), 1))
}

func (e *Evaluator) ingest(ctx context.Context, ts time.Time) error {
	app := e.db.Appender(ctx)
	for _, t := range e.targets {
		if err := t.collect(app, ts.UnixMilli()); err != nil {
			e.opts.Logger.Warn("Gathering metrics failed", "job", t.Job, "err", err)
		}
	}
	if err := app.Commit(); err != nil {
		return fmt.Errorf("evaluator: write samples: %w; is the disk full?", err)
	}
	return nil
}

// Timing is the duration of one evaluation.
type Timing struct {
	Ingest time.Duration // gathering the metrics and writing them
	Rules  time.Duration
}

// Timing returns the duration of the latest evaluation.
func (e *Evaluator) Timing() Timing {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.timing
}

// Query evaluates an instant query at a time; the zero time is the latest
// evaluation that is over, and before the first one Query waits for it. Its result is a
// vector of floats: a query whose result holds native histograms, or is a range or a
// string, is an error.
func (e *Evaluator) Query(ctx context.Context, expr string, at time.Time) (model.Vector, error) {
	if at.IsZero() {
		select {
		case <-e.first:
		case <-ctx.Done():
			return nil, fmt.Errorf("query %q: the first evaluation is not over: %w", expr, ctx.Err())
		}
	}
	e.life.RLock()
	defer e.life.RUnlock()
	if e.closed {
		return nil, ErrClosed
	}
	if at.IsZero() {
		at = time.UnixMilli(e.whole.Load())
	}
	q, err := e.promql.NewInstantQuery(ctx, e.db, nil, expr, at)
	if err != nil {
		return nil, fmt.Errorf("query %q: %w", expr, err)
	}
	defer q.Close()
	res := q.Exec(ctx)
	if res.Err != nil {
		return nil, fmt.Errorf("query %q: %w", expr, res.Err)
	}
	v, err := vectorOf(res.Value)
	if err != nil {
		return nil, fmt.Errorf("query %q: %w", expr, err)
	}
	return v, nil
}

// Close waits for evaluations and queries, and closes the database. Closing
// again does nothing.
func (e *Evaluator) Close() error {
	e.life.Lock()
	defer e.life.Unlock()
	if e.closed {
		return nil
	}
	e.closed = true
	e.firstOnce.Do(func() { close(e.first) })
	var err error
	if e.db != nil {
		err = e.db.Close()
	}
	return errors.Join(err, os.RemoveAll(e.dir))
}
