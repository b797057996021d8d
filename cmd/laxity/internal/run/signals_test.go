package run_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/laxity/laxity/actuator/admission"
	"github.com/laxity/laxity/actuator/placement/api"
	"github.com/laxity/laxity/cmd/laxity/internal/run"
)

// silent is an actuator that never answers one kind of call.
type silent struct {
	*actuator
	to    string        // place, again (without the deadline), check or admission
	asked chan struct{} // that call came
}

func (s *silent) block(ctx context.Context, call string) error {
	if call != s.to {
		return nil
	}
	s.asked <- struct{}{}
	<-ctx.Done()
	return &api.UnreachableError{Address: "http://a", Err: ctx.Err()}
}

func (s *silent) Place(ctx context.Context, w api.Wanted) (api.Placed, error) {
	call := "place"
	if w.Deadline == "" {
		call = "again"
	}
	if err := s.block(ctx, call); err != nil {
		return api.Placed{}, err
	}
	return s.actuator.Place(ctx, w)
}

func (s *silent) Check(ctx context.Context, id string) error {
	return errors.Join(s.block(ctx, "check"), s.actuator.Check(ctx, id))
}

func (s *silent) Admission(ctx context.Context, q admission.Question) (admission.Answer, error) {
	if err := s.block(ctx, "admission"); err != nil {
		return admission.Answer{}, err
	}
	return s.actuator.Admission(ctx, q)
}

var silences = map[string]struct {
	to, args string
	released string
}{
	"place":                {"place", "-d --deadline 9s i", ""},
	"place, late":          {"again", "-d --deadline 9s i", ""},
	"check":                {"check", "-d --deadline 9s i", "p1"},
	"admission":            {"admission", "-d --require --deadline 9s i", "p1"},
	"admission, this node": {"admission", "-d --node=local --require --deadline 9s i", ""},
}

func silence(to string) *silent {
	a := &actuator{next: []api.Placement{local("p1")}, answer: admission.Answer{Result: admission.Met}}
	if to == "again" {
		a.lateErr = &api.RefusedError{Code: 409}
	}
	return &silent{a, to, make(chan struct{}, 1)}
}

func parse(t *testing.T, args string) run.Spec {
	t.Helper()
	s, err := run.Parse("run", strings.Fields(args))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestSignalEndsPlacement(t *testing.T) {
	for name, tc := range silences {
		t.Run(name, func(t *testing.T) {
			called, a, signals := docker(t), silence(tc.to), make(chan os.Signal, 1)
			r := run.Runner{Docker: []string{"docker"}, Placements: a, Stdout: io.Discard, Stderr: io.Discard,
				Signals: signals, Received: func(os.Signal) bool { return true }}
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second) // less than a call's bound
			defer cancel()
			go func() {
				<-a.asked
				signals <- syscall.SIGTERM
			}()
			code, err := r.Run(ctx, parse(t, tc.args))
			if ctx.Err() != nil {
				t.Error("the signal did not end the call")
			}
			if code != 128+15 || err == nil || !strings.Contains(err.Error(), "no container was created") || called() {
				t.Errorf("code %d, %v; docker called: %v", code, err, called())
			}
			if got := strings.Join(a.released, " "); got != tc.released {
				t.Errorf("released %q, want %q", got, tc.released)
			}
		})
	}
}

func TestSilentActuatorDoesNotHangRun(t *testing.T) {
	for name, tc := range silences {
		t.Run(name, func(t *testing.T) {
			called, spec := docker(t), parse(t, tc.args)
			synctest.Test(t, func(t *testing.T) {
				a, start := silence(tc.to), time.Now()
				r := run.Runner{Docker: []string{"docker"}, Placements: a, Stderr: io.Discard}
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				defer cancel()
				code, err := r.Run(ctx, spec)
				if took := time.Since(start); code != run.ExitFailed || err == nil || took != 30*time.Second || called() {
					t.Errorf("code %d, %v, after %v; docker called: %v", code, err, took, called())
				}
				if got := strings.Join(a.released, " "); got != tc.released {
					t.Errorf("released %q, want %q", got, tc.released)
				}
			})
		})
	}
}

// mute is a silent actuator that answers no release either.
type mute struct{ *silent }

func (m mute) Bind(ctx context.Context, _, _ string) error { return m.block(ctx, "bind") }

func (m mute) Release(ctx context.Context, _ string) error {
	<-ctx.Done()
	return &api.UnreachableError{Address: "http://a", Err: ctx.Err()}
}

// A signal ends Run soon, whatever the actuator does not answer, and what stays reserved is said.
func TestSignalEndsRelease(t *testing.T) {
	for call, args := range map[string]string{"check": "-d --deadline 9s i", "admission": "-d --require --deadline 9s i", "bind": "-d --deadline 9s i"} {
		t.Run(call, func(t *testing.T) {
			// Docker ends at once, and nobody can tell whether the container runs.
			script(t, "docker", "[ \"$1\" = container ] && exit 1\nwhile [ \"$1\" != --cidfile ]; do shift; done\nprintf %064d 1 > \"$2\"\n")
			spec := parse(t, args)
			synctest.Test(t, func(t *testing.T) {
				a, signals := mute{silence(call)}, make(chan os.Signal, 1)
				var says strings.Builder
				r := run.Runner{Docker: []string{"docker"}, Placements: a, Stdout: io.Discard, Stderr: &says, Signals: signals}
				var signalled time.Time
				go func() {
					<-a.asked
					signalled = time.Now()
					signals <- syscall.SIGINT
				}()
				code, err := r.Run(context.Background(), spec)
				if took := time.Since(signalled); took > 2*time.Second {
					t.Errorf("it ended %v after the signal", took)
				}
				if text := fmt.Sprint(err, says.String()); !strings.Contains(text, "reservation p1") || !strings.Contains(text, "it expires by itself") {
					t.Errorf("code %d: %s", code, text)
				}
				if err != nil && (code != 130 || !strings.Contains(err.Error(), "no container was created")) {
					t.Errorf("code %d, %v", code, err)
				}
			})
		})
	}
}

// The terminal sends Ctrl-C to docker too, but not to a docker that does not run yet.
func TestEarlySignalStartsNoContainer(t *testing.T) {
	for args, released := range map[string]string{"-d --deadline 9s i": "p1", "i": "p1", "--node=local i": ""} {
		t.Run(args, func(t *testing.T) {
			called, a, signals := docker(t), &actuator{next: []api.Placement{local("p1")}}, make(chan os.Signal, 1)
			signals <- syscall.SIGINT
			r := run.Runner{Docker: []string{"docker"}, Placements: a, Stdout: io.Discard, Stderr: io.Discard,
				Signals: signals, Received: func(os.Signal) bool { return true }}
			code, err := r.Run(t.Context(), parse(t, args))
			if code != 130 || err == nil || called() || strings.Join(a.released, " ") != released {
				t.Errorf("code %d, %v; docker called: %v; released %v", code, err, called(), a.released)
			}
		})
	}
}

// Only a container that is known not to run loses its reservation.
func TestReservationOfRunningContainerIsKept(t *testing.T) {
	for name, tc := range map[string]struct {
		inspect  string // what docker container inspect does
		released bool
		says     string
	}{
		"running":                   {"echo running", false, ""},
		"ended":                     {"echo exited", true, ""},
		"removed, docker":           {"echo 'Error response from daemon: No such container: c' >&2; exit 1", true, ""},
		"removed, podman":           {"echo 'Error: no such container c' >&2; exit 125", true, ""},
		"removed, older podman":     {"echo 'Error: no such object: c' >&2; exit 125", true, ""},
		"the connection fails":      {"echo 'error during connect: ssh: exit status 255' >&2; exit 1", false, "reservation p1 is kept"},
		"it fails without a reason": {"exit 1", false, "exit status 1"},
	} {
		t.Run(name, func(t *testing.T) {
			script(t, "docker", `[ "$1 $2" = "container inspect" ] && { `+tc.inspect+`; exit; }
while [ "$1" != --cidfile ]; do shift; done
printf %064d 1 > "$2"
`)
			a := &actuator{next: []api.Placement{local("p1")}}
			var says strings.Builder
			r := run.Runner{Docker: []string{"docker"}, Placements: a, Stdout: io.Discard, Stderr: &says}
			code, err := r.Run(t.Context(), parse(t, "-d i"))
			if code != 0 || err != nil || (len(a.released) > 0) != tc.released || !strings.Contains(says.String(), tc.says) || tc.says == "" && says.Len() > 0 {
				t.Errorf("code %d, %v, released %v: %s", code, err, a.released, &says)
			}
		})
	}
}

// script puts a shell script on the path.
func script(t *testing.T, name, text string) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+text), 0o700); err != nil { //nolint:gosec // it is to be run
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
}
