// Package plain makes text harmless for a terminal. Strangers write the names of containers and
// alerts, labels and paths; a control character in them could move the cursor, hide lines or type.
//
// It is a leaf: it imports the standard library only.
package plain

import (
	"fmt"
	"io"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// Line returns the text on one line. Unprintable characters, line breaks too, become \u and their
// number as in JSON, so that a person sees them. Marks that change the direction of text count as
// unprintable.
func Line(text string) string {
	if strings.IndexFunc(text, func(r rune) bool { return !shown(r) }) < 0 && utf8.ValidString(text) {
		return text
	}
	var b strings.Builder
	for _, r := range text { // what is not UTF-8 becomes U+FFFD
		write(&b, r)
	}
	return b.String()
}

func shown(r rune) bool { return unicode.IsPrint(r) }

func write(b *strings.Builder, r rune) {
	switch {
	case shown(r):
		b.WriteRune(r)
	case r > 0xffff:
		high, low := utf16.EncodeRune(r)
		fmt.Fprintf(b, `\u%04x\u%04x`, high, low)
	default:
		fmt.Fprintf(b, `\u%04x`, r)
	}
}

// colour matches our own colours, which change only how the text behind them looks.
var colour = regexp.MustCompile(`^\x1b\[(?:0|1|2|31|32|33|36)m`)

// Text is Line for coloured text of several lines: line breaks, tabs and the colours of our own
// views pass.
func Text(text string) string {
	var b strings.Builder
	for len(text) > 0 {
		if paint := colour.FindString(text); paint != "" {
			b.WriteString(paint)
			text = text[len(paint):]
			continue
		}
		r, n := utf8.DecodeRuneInString(text)
		if r == '\n' || r == '\t' {
			b.WriteRune(r)
		} else {
			write(&b, r)
		}
		text = text[n:]
	}
	return b.String()
}

// Writer writes Text to a possible terminal. Everything that a program prints for people goes
// through one. Each Write must be whole characters, as fmt's are.
type Writer struct{ to io.Writer }

// NewWriter returns a Writer to this writer; a Writer stays as it is.
func NewWriter(to io.Writer) Writer {
	if w, ok := to.(Writer); ok {
		return w
	}
	return Writer{to}
}

// Write implements io.Writer.
func (w Writer) Write(p []byte) (int, error) {
	if _, err := io.WriteString(w.to, Text(string(p))); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Unwrap returns the underlying writer, for callers that draw on the terminal themselves.
func (w Writer) Unwrap() io.Writer { return w.to }

// Unwrap returns a Writer's underlying writer, and any other writer as it is.
func Unwrap(w io.Writer) io.Writer {
	if w, ok := w.(Writer); ok {
		return w.to
	}
	return w
}
