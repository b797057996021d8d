package ladder_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/laxity/laxity/actuator/plan/ladder"
	"github.com/laxity/laxity/actuator/policy"
	"github.com/laxity/laxity/exporter/task"
)

// tale tells what happens on one GPU, and what is to stand there. Every plan is carried
// out at once.
type tale struct {
	t     *testing.T
	in    ladder.Input
	state ladder.State
	plan  ladder.Plan
	order func(time.Time) policy.Order
	stood map[string]ladder.Standing
	fills map[string]float64 // the part of the time left to it that each computes; measured
	last  time.Time
}

type event func(s *tale)
type expectation func(s *tale) string

func story(t *testing.T) *tale {
	t.Helper()
	return &tale{t: t, order: edf, stood: map[string]ladder.Standing{}, fills: map[string]float64{}}
}

func (s *tale) Order(o func(time.Time) policy.Order) *tale { s.order = o; return s }
func (s *tale) Limits(l ladder.Limits) *tale               { s.in.Limits = l; return s }

func (s *tale) At(when string, events ...event) *tale {
	s.t.Helper()
	s.in.Now = epoch.Add(parse(s.t, when))
	for _, e := range events {
		e(s)
	}
	return s.carryOut()
}

// carryOut plans and carries out, and looks that this is all.
func (s *tale) carryOut() *tale {
	s.t.Helper()
	s.in.Order = s.order(s.in.Now)
	s.compute()
	for range 2 {
		for i, c := range s.in.Tenants {
			s.in.Tenants[i].Stands = s.stood[c.ID]
		}
		s.plan = ladder.Make(s.in, s.state)
		s.state = s.plan.State
		for _, c := range s.plan.Changes {
			was := s.stood[c.Tenant]
			if c.Set {
				was.Slice = c.Standing.Slice
			} else {
				was.Off, was.Until = c.Standing.Off, c.Standing.Until
			}
			s.stood[c.Tenant] = was
		}
	}
	if len(s.plan.Changes) > 0 {
		s.t.Errorf("at %v a plan that was carried out changes something: %+v", s.in.Now.Sub(epoch), s.plan.Changes)
	}
	return s
}

// compute divides the time that has passed among those that fill it.
func (s *tale) compute() {
	var on []*ladder.Tenant
	for i, c := range s.in.Tenants {
		if s.fills[c.ID] > 0 && !s.stood[c.ID].Off {
			on = append(on, &s.in.Tenants[i])
		}
	}
	for _, c := range on {
		if !s.last.IsZero() {
			c.Got += time.Duration(s.fills[c.ID] * float64(s.in.Now.Sub(s.last)) / float64(len(on)))
		}
	}
	s.last = s.in.Now
}

// Until goes on to that moment, with a plan whenever the one before asked for it.
func (s *tale) Until(when string, each func(s *tale)) *tale {
	s.t.Helper()
	end := epoch.Add(parse(s.t, when))
	for !s.plan.Again.IsZero() && !s.plan.Again.After(end) {
		s.in.Now = s.plan.Again
		s.carryOut()
		if each != nil {
			each(s)
		}
	}
	return s
}

func (s *tale) Expect(all ...expectation) *tale {
	s.t.Helper()
	for _, e := range all {
		if wrong := e(s); wrong != "" {
			s.t.Errorf("at %v: %s\n%s", s.in.Now.Sub(epoch), wrong, s)
		}
	}
	return s
}

func (s *tale) String() string {
	var b strings.Builder
	for _, c := range s.in.Tenants {
		st := s.plan.Standings[c.ID]
		fmt.Fprintf(&b, "  %-8s slice %-8v off %-5v %s\n", c.ID, st.Slice, st.Off, st.Reason)
	}
	return b.String()
}

func parse(t *testing.T, d string) time.Duration {
	t.Helper()
	v, err := time.ParseDuration(d)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func (s *tale) tenant(id string) *ladder.Tenant {
	i := slices.IndexFunc(s.in.Tenants, func(c ladder.Tenant) bool { return c.ID == id })
	if i < 0 {
		s.t.Fatalf("nobody is called %s", id)
	}
	return &s.in.Tenants[i]
}

// What happens.

type with func(s *tale, c *ladder.Tenant)

func Task(id string, more ...with) event {
	return func(s *tale) {
		c := ladder.Tenant{ID: id, Container: id, Name: id, Labelled: true, HasTask: true}
		c.Job.Task = task.Task{ID: id, Start: task.Mark{Time: s.in.Now}}
		for _, m := range more {
			m(s, &c)
		}
		s.in.Tenants = append(s.in.Tenants, c)
	}
}

func Server(id, deadline string, more ...with) event {
	return Task(id, append([]with{func(s *tale, c *ladder.Tenant) {
		c.Server, c.HasTask, c.Deadline = true, false, parse(s.t, deadline)
	}}, more...)...)
}

func Request(id string) event {
	return func(s *tale) {
		c := s.tenant(id)
		c.HasTask = true
		c.Job.Task = task.Task{ID: id, Start: task.Mark{Time: s.in.Now}, Deadline: s.in.Now.Add(c.Deadline)}
		c.Job.Request = true
	}
}

func Done(id string) event { return func(s *tale) { s.tenant(id).HasTask = false } }

func Gone(id string) event {
	return func(s *tale) {
		s.in.Tenants = slices.DeleteFunc(s.in.Tenants, func(c ladder.Tenant) bool { return c.ID == id })
		delete(s.stood, id)
	}
}

func Change(id string, more ...with) event {
	return func(s *tale) {
		for _, m := range more {
			m(s, s.tenant(id))
		}
	}
}

func Deadline(d string) with {
	return func(s *tale, c *ladder.Tenant) { c.Job.Deadline = s.in.Now.Add(parse(s.t, d)) }
}
func Batch(_ *tale, c *ladder.Tenant)      { c.Job.Batch = true }
func Unlabelled(_ *tale, c *ladder.Tenant) { c.Labelled = false }
func Never(_ *tale, c *ladder.Tenant)      { c.Never = true }
func Idle(_ *tale, c *ladder.Tenant)       { c.Wants = ladder.No }
func OnTwoGPUs(_ *tale, c *ladder.Tenant)  { c.KeepOn = "it is on several GPUs" }
func Asked(_ *tale, c *ladder.Tenant)      { c.Asked, c.Wants = "paused by anna", ladder.No }
func Share(part float64) with              { return func(_ *tale, c *ladder.Tenant) { c.Share = part } }
func In(container string) with {
	return func(_ *tale, c *ladder.Tenant) { c.Container = container }
}
func Got(d string) with {
	return func(s *tale, c *ladder.Tenant) { c.Got, c.Measured, c.Exact = parse(s.t, d), true, true }
}

// Sampled is Got by the driver's samples.
func Sampled(d string) with {
	return func(s *tale, c *ladder.Tenant) { c.Got, c.Measured, c.Exact = parse(s.t, d), true, false }
}

// Used is its part of the time of the last reading of the context switches.
func Used(part float64) with {
	return func(_ *tale, c *ladder.Tenant) { c.Used, c.Measured, c.Exact = part, true, true }
}

// Reading is one of the context switches, so many a second, from that moment until now.
func Reading(from string, rate float64) event {
	return func(s *tale) {
		began := epoch.Add(parse(s.t, from))
		s.in.Switches = ladder.Switches{From: began, For: s.in.Now.Sub(began), Rate: rate}
	}
}

// Fills is for who computes whenever it may.
func Fills(s *tale, c *ladder.Tenant) { c.Measured, s.fills[c.ID] = true, 1 }

// Gaps is for who computes for less than half of the time that it may.
func Gaps(s *tale, c *ladder.Tenant) { c.Measured, s.fills[c.ID] = true, 0.4 }

// What is expected.

func Slice(id, want string) expectation {
	return func(s *tale) string {
		if got := s.plan.Standings[id].Slice; got != parse(s.t, want) {
			return fmt.Sprintf("slice of %s is %v, want %s", id, got, want)
		}
		return ""
	}
}

func SliceWithin(id, least, most string) expectation {
	return func(s *tale) string {
		if got := s.plan.Standings[id].Slice; got < parse(s.t, least) || got > parse(s.t, most) {
			return fmt.Sprintf("slice of %s is %v, want %s to %s", id, got, least, most)
		}
		return ""
	}
}

func Rank(want ...string) expectation {
	return func(s *tale) string {
		for i, id := range want {
			if got := s.plan.Standings[id].Rank; got != i+1 {
				return fmt.Sprintf("rank of %s is %d, want %d", id, got, i+1)
			}
		}
		return ""
	}
}

func Off(want ...string) expectation {
	return func(s *tale) string {
		var got []string
		for _, c := range s.in.Tenants {
			if s.plan.Standings[c.ID].Off {
				got = append(got, c.ID)
			}
		}
		if !slices.Equal(got, want) {
			return fmt.Sprintf("off are %v, want %v", got, want)
		}
		return ""
	}
}

func Nobody(what func(...string) expectation) expectation { return what() }

func Untouched(id string) expectation {
	return func(s *tale) string {
		if st, ok := s.plan.Standings[id]; ok {
			return fmt.Sprintf("%s has a standing: %+v", id, st)
		}
		return ""
	}
}

func Says(id, want string) expectation {
	return func(s *tale) string {
		if got := s.plan.Standings[id].Reason; !strings.Contains(got, want) {
			return fmt.Sprintf("%s: %q does not say %q", id, got, want)
		}
		return ""
	}
}

func Reports(want string) expectation {
	return func(s *tale) string {
		if !strings.Contains(s.plan.Report, want) || want == "" && s.plan.Report != "" {
			return fmt.Sprintf("report is %q, want %q", s.plan.Report, want)
		}
		return ""
	}
}
