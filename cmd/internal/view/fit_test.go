package view_test

import (
	"testing"

	"github.com/laxity/laxity/cmd/internal/view"
)

func TestFit(t *testing.T) {
	for _, tt := range []struct {
		name, text    string
		width, height int
		want          string
	}{
		{"it fits", "a\nb\n\nc\n", 10, 5, "a\nb\n\nc\n"},
		{"it does not", "a\nb\n\nc\n", 10, 4, "a\nb\n… 2 lines more\n"},
		{"a line wraps", "aaaaaaaaaaaaaaa\nb\nc\n", 10, 4, "aaaaaaaaaaaaaaa\n… 2 lines more\n"},
		{"a line is as wide as the screen", "aaaaaaaaaa\nb\nc\n", 10, 4, "aaaaaaaaaa\nb\nc\n"},
		{"colours take no room", "\x1b[31maaaaaaaa\x1b[0m\x1b[1mbb\x1b[0m\nb\nc\n", 10, 4, "\x1b[31maaaaaaaa\x1b[0m\x1b[1mbb\x1b[0m\nb\nc\n"},
		{"hardly a screen", "a\nb\n", 10, 1, "… 2 lines more\n"},
		{"nothing", "", 10, 1, ""},
	} {
		if got := view.Fit(tt.text, tt.width, tt.height); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}
