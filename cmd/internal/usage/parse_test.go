package usage_test

import (
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/alecthomas/kingpin/v2"

	"github.com/laxity/laxity/cmd/internal/usage"
)

func app(out io.Writer) *kingpin.Application {
	a := kingpin.New("laxity-x", "It does things.")
	a.UsageWriter(out).ErrorWriter(out)
	a.Version(usage.Version("laxity-x"))
	a.Command("go", "Go there.").Arg("where", "Place.").Required().String()
	return a
}

func TestParse(t *testing.T) {
	for _, tt := range []struct {
		args   string
		over   bool
		failed bool
	}{
		{"--help", true, false}, {"--version", true, false}, {"go --help", true, false},
		{"go home", false, false}, {"go", false, true}, {"", true, false},
	} {
		var out strings.Builder
		command, over, code, err := usage.Parse(app(&out), strings.Fields(tt.args))
		if over != tt.over || code != 0 || (err != nil) != tt.failed || !over && err == nil && command != "go" {
			t.Errorf("%q: %q, %v, %d, %v", tt.args, command, over, code, err)
		}
		if n := strings.Count(out.String(), "usage: "); strings.Contains(tt.args, "--help") && n != 1 {
			t.Errorf("%q prints its help %d times", tt.args, n)
		}
	}
}

func TestVersionIsALine(t *testing.T) {
	var out strings.Builder
	if _, over, _, _ := usage.Parse(app(&out), []string{"--version"}); !over {
		t.Error("it goes on")
	}
	if !regexp.MustCompile(`^laxity-x \S+ \(commit \S+, go1\S+, linux/\w+\)\n$`).MatchString(out.String()) {
		t.Errorf("%q", out.String())
	}
}

// A wrong command line names the flag and the value, the choices, and whose --help has more.
func TestComplain(t *testing.T) {
	for args, want := range map[string]string{
		"go home --how=fly":  "laxity-x: --how=fly: write one of walk, ride; see 'laxity-x go --help'",
		"go home --how swim": "laxity-x: --how=swim: write one of walk, ride; see 'laxity-x go --help'",
		"go home -n x":       "laxity-x: --number=x: write a number; see 'laxity-x go --help'",
		"go home --part=x":   "laxity-x: --part=x: write a number; see 'laxity-x go --help'",
		"go home --late=5":   "laxity-x: --late=5: write a duration such as 5s; see 'laxity-x go --help'",
		"go home --every=x":  "laxity-x: --every=x: write a duration such as 5s; see 'laxity-x go --help'",
		"go home --every=0s": "laxity-x: --every=0s: write a duration longer than 0, such as 5s; see 'laxity-x go --help'",
		"go home --to=://":   "laxity-x: --to=://: write an address such as http://here:1; see 'laxity-x go --help'",
		"go home --to=foo":   "laxity-x: --to=foo: write an address such as http://here:1; see 'laxity-x go --help'",
		"stay":               "laxity-x: expected command but got \"stay\"; see 'laxity-x --help'",
		"go":                 "laxity-x: required argument 'where' not provided; see 'laxity-x go --help'",
	} {
		a := app(io.Discard)
		addFlags(a)
		_, _, _, err := usage.Parse(a, strings.Fields(args))
		if err == nil {
			t.Fatalf("%s: no error", args)
		}
		if got := usage.Complain(a, strings.Fields(args), err); got != want {
			t.Errorf("%s: %s, want %s", args, got, want)
		}
	}
}

func addFlags(a *kingpin.Application) {
	cmd := a.GetCommand("go")
	cmd.Flag("how", "How.").Enum("walk", "ride")
	cmd.Flag("number", "How many.").Short('n').Int()
	cmd.Flag("part", "Part.").Float64()
	cmd.Flag("late", "How late.").Duration()
	usage.Positive(cmd.Flag("every", "How often."), time.Second, new(time.Duration))
	usage.Address(cmd.Flag("to", "Where to.").Envar("LAXITY_X_TO"), "http://here:1", new(string))
}

func TestComplainNamesTheVariable(t *testing.T) {
	t.Setenv("LAXITY_X_TO", "foo")
	a := app(io.Discard)
	addFlags(a)
	args := []string{"go", "home"}
	_, _, _, err := usage.Parse(a, args)
	if err == nil {
		t.Fatal("no error")
	}
	if got, want := usage.Complain(a, args, err), "laxity-x: LAXITY_X_TO=foo: write an address such as http://here:1; see 'laxity-x go --help'"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// An error that a command found itself keeps its words.
func TestWrong(t *testing.T) {
	if usage.Wrong(nil) != nil || usage.Is(errors.New("x")) {
		t.Error("what is no usage error is one")
	}
	err := fmt.Errorf("up: %w", usage.Wrong(errors.New("late is 0")))
	if !usage.Is(err) {
		t.Error("it is no usage error")
	}
	a := app(io.Discard)
	if got, want := usage.Complain(a, []string{"go", "home"}, err), "laxity-x: up: late is 0; see 'laxity-x go --help'"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
