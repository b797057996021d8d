package view

import (
	"io"
	"os"

	"golang.org/x/term"

	"github.com/laxity/laxity/internal/plain"
)

// IsTerminal reports whether out is a terminal.
func IsTerminal(out io.Writer) bool {
	f, ok := plain.Unwrap(out).(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// ColoursOn says whether to paint what goes to out.
func ColoursOn(out io.Writer) Palette { return Colours(IsTerminal(out)) }

// Width is that of the terminal; 0, no limit, elsewhere.
func Width(out io.Writer) int {
	w, _ := Size(out)
	return w
}

// Size is that of the terminal, in characters; 0, no limit, elsewhere.
func Size(out io.Writer) (width, height int) {
	if f, ok := plain.Unwrap(out).(*os.File); ok {
		if w, h, err := term.GetSize(int(f.Fd())); err == nil {
			return w, h
		}
	}
	return 0, 0
}
