package reference

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/alecthomas/kingpin/v2"
	"github.com/cpuguy83/go-md2man/v2/md2man"
)

// KeepPackaged does for package/NAME, which packages install, what Keep does for a page.
func KeepPackaged(t testing.TB, name, text string) {
	t.Helper()
	keep(t, filepath.Join("package", filepath.FromSlash(name)), text)
}

// Manual writes the manual page of one program: its commands, arguments and flags. It has neither
// version nor date, so that it changes only with them. same is as for Program.
func Manual(m *kingpin.ApplicationModel, section int, same map[string]string) string {
	what := oneLine(m.Help)
	if end := strings.IndexAny(what, ",.:"); end >= 0 { // one clause is enough for whatis
		what = what[:end]
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%% %q %q \"\" \"Laxity\" \"Laxity\"\n\n", strings.ToUpper(m.Name), fmt.Sprint(section))
	fmt.Fprintf(&b, "# NAME\n\n%s - %s\n\n", m.Name, plainText(what))
	fmt.Fprintf(&b, "# SYNOPSIS\n\n**%s** %s\n\n# DESCRIPTION\n\n%s# FLAGS\n\n", m.Name, plainText(synopsis(m)), fence(m.Help))
	definitions(&b, m.FlagGroupModel, same)
	for i, c := range m.FlattenedCommands() {
		if c.Hidden || c.FullCommand == "help" {
			continue
		}
		if i == 0 || !strings.Contains(b.String(), "\n# COMMANDS\n") {
			b.WriteString("\n# COMMANDS\n")
		}
		fmt.Fprintf(&b, "\n## %s %s\n\n%s", m.Name, c.FullCommand, fence(c.Help))
		for _, a := range c.Args {
			fmt.Fprintf(&b, "**%s**\n: %s\n\n", plainText(a.Name), plainText(oneLine(a.Help)))
		}
		definitions(&b, c.FlagGroupModel, same)
	}
	return string(md2man.Render([]byte(b.String())))
}

func synopsis(m *kingpin.ApplicationModel) string {
	if len(m.Commands) > 0 {
		return "[flag...] command [argument...]"
	}
	return "[flag...]"
}

func definitions(b *strings.Builder, g *kingpin.FlagGroupModel, same map[string]string) {
	for _, f := range g.Flags {
		if f.Hidden || f.Name == "help" {
			continue
		}
		name := "**--" + f.Name + "**"
		if f.Short != 0 {
			name += fmt.Sprintf(", **-%c**", f.Short)
		}
		help := plainText(oneLine(f.Help))
		if d := defaults(f, same); len(d) > 0 {
			help += " Default: " + plainText(strings.ReplaceAll(strings.Join(d, ", "), "`", "")) + "."
		}
		if f.Envar != "" {
			help += " Also **" + plainText(f.Envar) + "** in the environment."
		}
		fmt.Fprintf(b, "%s\n: %s\n\n", name, help)
	}
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

// fence keeps text as it is written.
func fence(s string) string { return "```\n" + strings.TrimSpace(s) + "\n```\n\n" }

// plainText keeps Markdown from reading marks in text.
func plainText(s string) string {
	return strings.NewReplacer(`\`, `\\`, "*", `\*`, "_", `\_`, "`", "\\`", "<", `\<`, "[", `\[`, "]", `\]`, "{", `\{`, "}", `\}`, "|", `\|`, "~", `\~`).Replace(s)
}
