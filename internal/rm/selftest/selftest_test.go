package selftest_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/laxity/laxity/internal/needtest"
	"github.com/laxity/laxity/internal/rm"
	"github.com/laxity/laxity/internal/rm/rmtest"
	"github.com/laxity/laxity/internal/rm/selftest"
	"github.com/laxity/laxity/internal/rm/selftest/subject"
)

const (
	gpu    = "GPU-00000000-1111-2222-3333-444444444444"
	driver = "580.105.08"
)

// asHelper makes this test the helper process of TestLiveSelfTest.
const asHelper = "LAXITY_SELFTEST_SUBJECT"

func TestMain(m *testing.M) {
	if os.Getenv(asHelper) != "" {
		if err := subject.Serve(selftest.SharedFD); err != nil {
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// pretended is a helper on a fake resource manager: its kernel beats as often as time
// passes while its channels are on, in proportion to its slice.
type pretended struct {
	fake    *rmtest.RM
	process *rmtest.Process
	group   rm.Group
	manager *rm.Manager
	beat    uint32
	looked  time.Time
	runs    bool
	closed  *int
	// What is wrong with it.
	inert, deaf, wrong, mute bool
}

func (p *pretended) Process() rm.Process { return p.process.ID() }

func (p *pretended) Launch(time.Duration) error {
	p.runs, p.beat, p.looked = true, 0, time.Now()
	return nil
}

func (p *pretended) Beat() uint32 {
	slice, err := p.manager.Slice(context.Background(), p.group)
	if err != nil || p.inert {
		slice = time.Millisecond
	}
	if p.runs && !p.mute && (p.deaf || len(p.fake.Off(p.group)) == 0) {
		p.beat += uint32(time.Since(p.looked).Microseconds() * slice.Milliseconds())
	}
	p.looked = time.Now()
	return p.beat
}

func (p *pretended) Finish(context.Context) error {
	p.runs = false
	if p.wrong {
		return errors.New("its result is wrong")
	}
	return nil
}

func (p *pretended) Close() {
	*p.closed++
	p.process.Kill()
}

func try(t *testing.T, change func(*rmtest.RM, *pretended), card selftest.Card, version string) (r selftest.Result, err error) {
	synctest.Test(t, func(t *testing.T) {
		fake := rmtest.New(gpu)
		fake.SetDriver(version)
		m := rm.New(fake, rm.Options{})
		var both []*pretended
		closed := 0
		r, err = selftest.Run(t.Context(), m, version, card, func(context.Context) (selftest.Subject, error) {
			fake.Advance(time.Second)
			p := fake.Start(100 + len(both))
			s := &pretended{fake: fake, process: p, group: p.Context(p.OpenFile(7), 0), manager: m, closed: &closed}
			change(fake, s)
			both = append(both, s)
			return s, nil
		})
		if closed != len(both) {
			t.Errorf("%d of %d helpers live on", len(both)-closed, len(both))
		}
		if fake.Held() != 0 || fake.Clients() != 0 {
			t.Errorf("%d descriptors and %d clients are left", fake.Held(), fake.Clients())
		}
	})
	return r, err
}

func TestRun(t *testing.T) {
	good := selftest.Card{UUID: gpu, Free: 4 << 30}
	refuse := func(cmd uint32) func(*rmtest.RM, *pretended) {
		return func(fake *rmtest.RM, _ *pretended) {
			fake.Hook(func(c *rmtest.Call) {
				if c.Cmd == cmd {
					c.Status = rmtest.StatusNotSupported
				}
			})
		}
	}
	for name, c := range map[string]struct {
		change         func(*rmtest.RM, *pretended)
		card           selftest.Card
		version        string
		works, slices  bool
		untested       bool
		reasonContains string
	}{
		"all works":         {works: true, slices: true},
		"slices are inert":  {change: func(_ *rmtest.RM, s *pretended) { s.inert = true }, works: true, reasonContains: "% of the time"},
		"off is ignored":    {change: func(_ *rmtest.RM, s *pretended) { s.deaf = true }, reasonContains: "ran on"},
		"off is refused":    {change: refuse(rmtest.CmdDisable), reasonContains: "NV_ERR_NOT_SUPPORTED"},
		"slice is refused":  {change: refuse(rmtest.CmdSetSlice), works: true, reasonContains: "NV_ERR_NOT_SUPPORTED"},
		"wrong result":      {change: func(_ *rmtest.RM, s *pretended) { s.wrong = true }, reasonContains: "wrong"},
		"no group":          {change: func(_ *rmtest.RM, s *pretended) { s.process.Free(s.group.Client, s.group.Handle) }, reasonContains: "not found"},
		"the card is busy":  {change: func(_ *rmtest.RM, s *pretended) { s.mute = true }, untested: true},
		"unknown driver":    {version: "610.1", reasonContains: "610.1"},
		"memory is short":   {card: selftest.Card{UUID: gpu, Free: 1 << 30}, untested: true},
		"memory is unknown": {card: selftest.Card{UUID: gpu}, untested: true},
		"exclusive":         {card: selftest.Card{UUID: gpu, Free: 4 << 30, Exclusive: true}, untested: true},
	} {
		t.Run(name, func(t *testing.T) {
			if c.change == nil {
				c.change = func(*rmtest.RM, *pretended) {}
			}
			if c.card == (selftest.Card{}) {
				c.card = good
			}
			if c.version == "" {
				c.version = driver
			}
			r, err := try(t, c.change, c.card, c.version)
			if c.untested != errors.Is(err, selftest.ErrUntested) || (err != nil) != c.untested {
				t.Fatalf("%+v, %v", r, err)
			}
			if r.Switch != c.works || r.Slices != c.slices || !strings.Contains(r.Reason, c.reasonContains) {
				t.Errorf("%+v", r)
			}
			if proven := r.Switch && r.Slices; !c.untested && proven != (r.Reason == "") {
				t.Errorf("proven %v with the reason %q", proven, r.Reason)
			}
		})
	}
}

func TestRemember(t *testing.T) {
	path := filepath.Join(t.TempDir(), "selftest.json")
	if _, found, err := selftest.Recall(path, driver, gpu); found || err != nil {
		t.Fatal(found, err)
	}
	a := selftest.Result{Driver: driver, GPU: gpu, Switch: true, Reason: "r", At: time.Unix(5, 0).UTC()}
	b := selftest.Result{Driver: driver, GPU: "GPU-b", Slices: true}
	for _, r := range []selftest.Result{b, {Driver: driver, GPU: gpu}, a} {
		if err := selftest.Remember(path, r); err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []selftest.Result{a, b} {
		if got, found, err := selftest.Recall(path, want.Driver, want.GPU); got != want || !found || err != nil {
			t.Errorf("%+v %v %v, want %+v", got, found, err, want)
		}
	}
	if _, found, _ := selftest.Recall(path, "595.1", gpu); found {
		t.Error("another driver has that result")
	}
	if err := selftest.Remember(path, selftest.Result{Driver: "595.1", GPU: gpu}); err != nil {
		t.Fatal(err)
	}
	if _, found, _ := selftest.Recall(path, driver, gpu); found {
		t.Error("the old driver's result is kept")
	}
	if err := os.WriteFile(path, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, found, err := selftest.Recall(path, driver, gpu); found || err == nil {
		t.Error("a broken file is read")
	}
	if err := selftest.Remember(path, a); err != nil {
		t.Fatal(err)
	}
}

func helper(ctx context.Context) (*selftest.Helper, error) {
	return selftest.Start(ctx, rm.System(), []string{"/proc/self/exe"}, gpu)
}

func TestHelperSaysWhatItLacks(t *testing.T) {
	if _, err := os.Stat("/dev/nvidiactl"); err == nil {
		t.Skip("there is a GPU")
	}
	t.Setenv(asHelper, "1")
	if h, err := helper(t.Context()); err == nil {
		h.Close()
		t.Error("a helper without a GPU is ready")
	} else {
		t.Log(err)
	}
}

func TestLiveSelfTest(t *testing.T) {
	if _, err := os.Stat("/dev/nvidiactl"); err != nil {
		needtest.GPU.Skipf(t, "needs a GPU of NVIDIA: %v", err)
	}
	t.Setenv(asHelper, "1")
	version, err := rm.System().Driver()
	if err != nil {
		t.Fatal(err)
	}
	m := rm.New(rm.System(), rm.Options{Proven: []string{version}})
	for range 5 {
		began := time.Now()
		// The first card that CUDA counts; its UUID is what the helper is told.
		r, err := selftest.Run(t.Context(), m, version, selftest.Card{UUID: "0", Free: selftest.MinFree}, func(ctx context.Context) (selftest.Subject, error) {
			return selftest.Start(ctx, rm.System(), []string{"/proc/self/exe"}, "0")
		})
		t.Logf("%+v, %v, took %v", r, err, time.Since(began))
		if err != nil || !r.Switch || !r.Slices {
			t.Errorf("%+v, %v", r, err)
		}
	}
}
