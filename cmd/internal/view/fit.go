package view

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// Fit cuts lines off the end of a text until it fits a screen, a line that wraps counting
// as several, and says how many. The last line of the screen stays empty, for the text
// ends with a line break.
func Fit(text string, width, height int) string {
	lines := strings.SplitAfter(text, "\n")
	lines = lines[:len(lines)-1]
	ends := make([]int, len(lines)) // the rows of the screen until the end of each
	used := 0
	for i, line := range lines {
		used += max(1, (visible(line)+width-1)/width)
		ends[i] = used
	}
	if used < height {
		return text
	}
	n := len(lines)
	for n > 0 && ends[n-1] > height-2 { // one for what is said below
		n--
	}
	return strings.Join(lines[:n], "") + fmt.Sprintf("… %d lines more\n", len(lines)-n)
}

// visible is how many characters of a line can be seen: not its end, nor its colours.
func visible(line string) int {
	n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n"))
	for {
		_, after, painted := strings.Cut(line, "\x1b[")
		if !painted {
			return n
		}
		code, rest, _ := strings.Cut(after, "m")
		n -= len("\x1b[m") + len(code)
		line = rest
	}
}
