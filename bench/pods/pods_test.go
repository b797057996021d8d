package pods

import "testing"

func TestSplit(t *testing.T) {
	for name, c := range map[string]struct{ log, stdout, stderr string }{
		"nothing": {"", "", ""},
		"both":    {"2026-01-01T00:00:00Z stdout F one two\n2026-01-01T00:00:00Z stderr F bad\n", "one two\n", "bad\n"},
		"in two":  {"2026-01-01T00:00:00Z stdout P be\n2026-01-01T00:00:00Z stdout F gun\n", "begun\n", ""},
		"empty":   {"2026-01-01T00:00:00Z stdout F \n", "\n", ""},
		"written": {"2026-01-01T00:00:00Z stdout F whole\n2026-01-01T00:00:00Z stdout F ha", "whole\n", ""},
	} {
		if stdout, stderr := Split(c.log); stdout != c.stdout || stderr != c.stderr {
			t.Errorf("%s: %q, %q", name, stdout, stderr)
		}
	}
}
