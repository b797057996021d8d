package view

import "os"

// Style paints text with ANSI codes; "" leaves it as it is.
type Style string

// The styles. They use only the eight colours of every terminal, which its owner has chosen to be
// readable.
const (
	Plain  Style = ""
	Bold   Style = "1"
	Dim    Style = "2"
	Red    Style = "31"
	Green  Style = "32"
	Yellow Style = "33"
	Cyan   Style = "36"
)

// Palette says whether to paint.
type Palette bool

// Paint returns the text in a style.
func (p Palette) Paint(s Style, text string) string {
	if !bool(p) || s == Plain || text == "" {
		return text
	}
	return "\x1b[" + string(s) + "m" + text + "\x1b[0m"
}

// Colours says whether to paint: on a terminal that supports colours, unless NO_COLOR is set
// (no-color.org).
func Colours(terminal bool) Palette {
	return Palette(terminal && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb")
}

// StateStyle is the style of a task's state: a stopped task is yellow.
func StateStyle(state string) Style {
	switch state {
	case "running":
		return Green
	case "held", "paused", "swapped":
		return Yellow
	case Idle:
		return Dim
	default:
		return Plain
	}
}
