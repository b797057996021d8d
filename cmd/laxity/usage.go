package main

import (
	"strings"
	"text/template"

	"github.com/alecthomas/kingpin/v2"
)

// usageTemplate replaces kingpin's list of all commands with all their texts by one
// line for each: what a command does and how is told by its own --help.
var usageTemplate = strings.Replace(kingpin.DefaultUsageTemplate,
	"Commands:\n{{template \"FormatCommands\" .App}}\n",
	"Commands:\n{{range .App.FlattenedCommands}}{{if not .Hidden}}  {{printf \"%-12s\" .FullCommand}} {{.Help|First}}\n{{end}}{{end}}\n'laxity COMMAND --help' has examples.\n", 1)

var usageFuncs = template.FuncMap{
	"First": func(text string) string {
		line, _, _ := strings.Cut(text, "\n")
		return line
	},
}
