// Package usage has the usage texts of our command lines: a short list of commands, and errors that
// name the flag with a wrong value.
package usage

import (
	"fmt"
	"regexp"
	"strings"
	"text/template"

	"github.com/alecthomas/kingpin/v2"

	"github.com/laxity/laxity/internal/plain"
)

// Shorten gives a program the short list of commands.
func Shorten(app *kingpin.Application) { app.UsageTemplate(listing).UsageFuncs(funcs) }

// listing has one line per command, instead of kingpin's list with all texts. A command's own
// --help has the details.
var listing = strings.Replace(kingpin.DefaultUsageTemplate,
	"Commands:\n{{template \"FormatCommands\" .App}}\n",
	"Commands:\n{{range .App.FlattenedCommands}}{{if not .Hidden}}  {{printf \"%-14s\" .FullCommand}} {{.Help|First}}\n{{end}}{{end}}\n'{{.App.Name}} COMMAND --help' has examples.\n", 1)

var notOneOf = regexp.MustCompile(`^enum value must be one of (.*), got '(.*)'$`)

// Complain returns the line that a program prints for a wrong command line: what is wrong, with
// the flag that has the wrong value, and whose --help has the right ones.
func Complain(app *kingpin.Application, args []string, err error) string {
	see := app.Name
	if len(args) > 0 && app.GetCommand(args[0]) != nil {
		see += " " + args[0]
	}
	return fmt.Sprintf("%s: %s; see '%s --help'", app.Name, plain.Line(wrong(args, err)), see)
}

func wrong(args []string, err error) string {
	m := notOneOf.FindStringSubmatch(err.Error())
	if m == nil {
		return err.Error()
	}
	choices, value := strings.FieldsFunc(m[1], func(r rune) bool { return r == ',' }), m[2]
	for i, arg := range args {
		if _, v, ok := strings.Cut(arg, "="); ok && v == m[2] {
			value = arg
		} else if arg == m[2] && i > 0 && strings.HasPrefix(args[i-1], "--") {
			value = args[i-1] + " " + arg
		}
	}
	return value + ": write one of " + strings.Join(choices, ", ")
}

var funcs = template.FuncMap{
	"First": func(text string) string {
		line, _, _ := strings.Cut(text, "\n")
		return line
	},
}
