// Package usage has the usage texts of our command lines: a short list of commands, and errors that
// name the flag with a wrong value.
package usage

import (
	"regexp"
	"strings"
	"text/template"

	"github.com/alecthomas/kingpin/v2"
)

// Shorten gives a program the short list of commands.
func Shorten(app *kingpin.Application) { app.UsageTemplate(listing).UsageFuncs(funcs) }

// listing has one line per command, instead of kingpin's list with all texts. A command's own
// --help has the details.
var listing = strings.Replace(kingpin.DefaultUsageTemplate,
	"Commands:\n{{template \"FormatCommands\" .App}}\n",
	"Commands:\n{{range .App.FlattenedCommands}}{{if not .Hidden}}  {{printf \"%-14s\" .FullCommand}} {{.Help|First}}\n{{end}}{{end}}\n'{{.App.Name}} COMMAND --help' has examples.\n", 1)

var notOneOf = regexp.MustCompile(`^enum value must be one of (.*), got '(.*)'$`)

// Wrong returns the parser's error, with the flag that has the wrong value.
func Wrong(args []string, err error) string {
	m := notOneOf.FindStringSubmatch(err.Error())
	if m == nil {
		return err.Error()
	}
	choices, wrong := strings.FieldsFunc(m[1], func(r rune) bool { return r == ',' }), m[2]
	for i, arg := range args {
		if flag, value, ok := strings.Cut(arg, "="); ok && value == wrong {
			wrong = flag + "=" + value
		} else if arg == wrong && i > 0 && strings.HasPrefix(args[i-1], "--") {
			wrong = args[i-1] + " " + arg
		}
	}
	return wrong + ": write one of " + strings.Join(choices, ", ")
}

var funcs = template.FuncMap{
	"First": func(text string) string {
		line, _, _ := strings.Cut(text, "\n")
		return line
	},
}
