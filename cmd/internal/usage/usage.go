// Package usage has the usage texts of our command lines: a short list of commands, and errors that
// name the flag with a wrong value.
package usage

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"strconv"
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

// Complain returns the line that a program prints for a wrong command line: what is wrong, with
// the flag that has the wrong value, and whose --help has the right ones.
func Complain(app *kingpin.Application, args []string, err error) string {
	see := app.Name
	if len(args) > 0 && app.GetCommand(args[0]) != nil {
		see += " " + args[0]
	}
	if !Is(err) { // kingpin's errors do not name the flag
		if wrong, refused := refusedValue(app, args); refused != nil {
			err = fmt.Errorf("%s: %s", wrong, whatToWrite(refused))
		}
	}
	return fmt.Sprintf("%s: %s; see '%s --help'", app.Name, plain.Line(err.Error()), see)
}

// refusedValue finds the first flag or argument of a command line, or else a flag's variable in the
// environment, whose value is refused, and returns it as a person writes it.
func refusedValue(app *kingpin.Application, args []string) (wrong string, refused error) {
	parsed, err := app.ParseContext(args)
	if err != nil {
		return "", nil //nolint:nilerr // the command line has an error before its values, which the caller tells
	}
	flags := app.Model().Flags
	for _, e := range parsed.Elements {
		switch clause := e.Clause.(type) {
		case *kingpin.FlagClause:
			f := clause.Model()
			if err := f.Value.Set(*e.Value); err != nil {
				return "--" + f.Name + "=" + *e.Value, err
			}
		case *kingpin.ArgClause:
			if err := clause.Model().Value.Set(*e.Value); err != nil {
				return *e.Value, err
			}
		case *kingpin.CmdClause:
			flags = append(flags, clause.Model().Flags...)
		}
	}
	for _, f := range flags {
		if value := os.Getenv(f.Envar); f.Envar != "" && value != "" {
			if err := f.Value.Set(value); err != nil {
				return f.Envar + "=" + value, err
			}
		}
	}
	return "", nil
}

var notOneOf = regexp.MustCompile(`^enum value must be one of (.*), got '.*'$`)

// whatToWrite says what a flag takes, by the error about its value.
func whatToWrite(err error) string {
	var number *strconv.NumError
	m := notOneOf.FindStringSubmatch(err.Error())
	switch {
	case m != nil:
		choices := strings.FieldsFunc(m[1], func(r rune) bool { return r == ',' })
		return "write one of " + strings.Join(choices, ", ")
	case strings.HasPrefix(err.Error(), "time: "):
		return "write a duration such as 5s"
	case errors.As(err, &number) && number.Func != "ParseBool":
		return "write a number"
	default:
		return err.Error()
	}
}

var funcs = template.FuncMap{
	"First": func(text string) string {
		line, _, _ := strings.Cut(text, "\n")
		return line
	},
}
