package usage_test

import (
	"io"
	"regexp"
	"strings"
	"testing"

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
		"go home --how swim": "laxity-x: --how swim: write one of walk, ride; see 'laxity-x go --help'",
		"stay":               "laxity-x: expected command but got \"stay\"; see 'laxity-x --help'",
		"go":                 "laxity-x: required argument 'where' not provided; see 'laxity-x go --help'",
	} {
		a := app(io.Discard)
		a.GetCommand("go").Flag("how", "How.").Enum("walk", "ride")
		_, _, _, err := usage.Parse(a, strings.Fields(args))
		if err == nil {
			t.Fatalf("%s: no error", args)
		}
		if got := usage.Complain(a, strings.Fields(args), err); got != want {
			t.Errorf("%s: %s, want %s", args, got, want)
		}
	}
}
