package plain_test

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/laxity/laxity/internal/plain"
)

func TestLine(t *testing.T) {
	for text, want := range map[string]string{
		"web-1":             "web-1",
		"größe 漢字 🙂":        "größe 漢字 🙂",
		"a\x1b[2Jb":         `a\u001b[2Jb`,
		"a\nb\tc\rd":        `a\u000ab\u0009c\u000dd`,
		"\x1b]0;title\x07":  `\u001b]0;title\u0007`,
		"c1 \u009b31m":      `c1 \u009b31m`,
		"\x7f":              `\u007f`,
		"user\u202egnp.exe": `user\u202egnp.exe`,
		"\u2066x\u2069":     `\u2066x\u2069`,
		"tag \U000e0001":    `tag \udb40\udc01`,
		"bad \xff\x9b":      "bad \ufffd\ufffd",
		"two\u2028lines":    `two\u2028lines`,
	} {
		if got := plain.Line(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

func TestText(t *testing.T) {
	for text, want := range map[string]string{
		"\x1b[1mHEAD\x1b[0m\n\tline\n": "\x1b[1mHEAD\x1b[0m\n\tline\n",
		"\x1b[8mhidden":                `\u001b[8mhidden`,
		"\x1b[31;8m":                   `\u001b[31;8m`,
		"\x1b[H\x1b[J":                 `\u001b[H\u001b[J`,
		"over\rwritten":                `over\u000dwritten`,
	} {
		if got := plain.Text(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

// JSON that goes through a Writer says the same.
func TestWriterKeepsJSON(t *testing.T) {
	want := "\x7f \u009b \u202e \U000e0001 \u2028 \x1b[2J ü"
	var b strings.Builder
	if err := json.NewEncoder(plain.NewWriter(plain.NewWriter(&b))).Encode(want); err != nil {
		t.Fatal(err)
	}
	var got string
	if err := json.Unmarshal([]byte(b.String()), &got); err != nil || got != want {
		t.Errorf("%q became %q, %v", want, got, err)
	}
	if plain.Unwrap(plain.NewWriter(&b)) != &b || plain.Unwrap(&b) != &b {
		t.Error("not unwrapped")
	}
}

func FuzzLine(f *testing.F) {
	for _, seed := range []string{"web", "a\x1b[2J", "\xff", "\u202e", "\U000e0001"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for _, got := range []string{plain.Line(text), strings.NewReplacer("\n", "", "\t", "", "\x1b[0m", "", "\x1b[1m", "", "\x1b[2m", "", "\x1b[31m", "", "\x1b[32m", "", "\x1b[33m", "", "\x1b[36m", "").Replace(plain.Text(text))} {
			if !utf8.ValidString(got) || strings.IndexFunc(got, func(r rune) bool { return !unicode.IsPrint(r) }) >= 0 {
				t.Errorf("%q became %q", text, got)
			}
		}
		if plain.Line(plain.Line(text)) != plain.Line(text) {
			t.Errorf("%q: twice is not once", text)
		}
	})
}
