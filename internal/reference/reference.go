// Package reference makes the pages of docs/reference from the programs themselves, and keeps them
// current: a test of each program compares its page with its present output.
package reference

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/alecthomas/kingpin/v2"
)

// Head is the first line of every page that is made.
const Head = "<!-- Made by `make docs`. Do not edit. -->\n\n"

// Keep compares docs/reference/NAME with text. With LAXITY_DOCS=write in the
// environment, which `make docs` sets, it writes the page instead.
func Keep(t testing.TB, name, text string) {
	t.Helper()
	keep(t, filepath.Join("docs", "reference", name), Head+text)
}

func keep(t testing.TB, name, text string) {
	t.Helper()
	path := filepath.Join(Root(), name)
	if os.Getenv("LAXITY_DOCS") == "write" {
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
		return
	}
	got, err := os.ReadFile(path)
	if err != nil || string(got) != text {
		t.Errorf("%s is not what the code says any more (%v): run `make docs` and commit what it writes\n%s", name, err, firstDifference(string(got), text))
	}
}

// Root is the folder of the repository.
func Root() string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Join(filepath.Dir(file), "..", "..")
}

func firstDifference(got, want string) string {
	g, w := strings.Split(got, "\n"), strings.Split(want, "\n")
	for i := range w {
		if i >= len(g) || g[i] != w[i] {
			return fmt.Sprintf("line %d should be: %s", i+1, w[i])
		}
	}
	return "the page is too long"
}

// Cell escapes text for a cell of a Markdown table.
func Cell(s string) string {
	return strings.NewReplacer("|", `\|`, "\n", " ", "<", "&lt;").Replace(strings.TrimSpace(s))
}

// Program writes the page of one program: its commands, arguments and flags. same replaces defaults
// that differ between machines.
func Program(m *kingpin.ApplicationModel, same map[string]string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# %s\n\n```text\n%s\n```\n", m.Name, strings.TrimSpace(m.Help))
	table(&b, "\n## Flags\n", m.FlagGroupModel, same)
	for _, c := range m.FlattenedCommands() {
		if c.Hidden || c.FullCommand == "help" {
			continue
		}
		fmt.Fprintf(&b, "\n## %s %s\n\n```text\n%s\n```\n", m.Name, c.FullCommand, strings.TrimSpace(c.Help))
		arguments(&b, c.ArgGroupModel)
		table(&b, "", c.FlagGroupModel, same)
	}
	return b.String()
}

func arguments(b *strings.Builder, g *kingpin.ArgGroupModel) {
	if len(g.Args) == 0 {
		return
	}
	b.WriteString("\n| argument | meaning |\n|---|---|\n")
	for _, a := range g.Args {
		fmt.Fprintf(b, "| `%s` | %s |\n", a.Name, Cell(a.Help))
	}
}

func table(b *strings.Builder, heading string, g *kingpin.FlagGroupModel, same map[string]string) {
	head := heading + "\n| flag | default | meaning |\n|---|---|---|\n"
	for _, f := range g.Flags {
		if f.Hidden || f.Name == "help" {
			continue
		}
		name := "`--" + f.Name + "`"
		if f.Short != 0 {
			name += fmt.Sprintf(", `-%c`", f.Short)
		}
		help := Cell(f.Help)
		if f.Envar != "" {
			help += " Also `" + f.Envar + "` in the environment."
		}
		fmt.Fprintf(b, "%s| %s | %s | %s |\n", head, name, Cell(strings.Join(defaults(f, same), ", ")), help)
		head = ""
	}
}

// defaults of a flag; same replaces those that differ between machines.
func defaults(f *kingpin.FlagModel, same map[string]string) (list []string) {
	for _, d := range f.Default {
		if other, ok := same[d]; ok {
			list = append(list, other)
		} else if d != "" {
			list = append(list, "`"+d+"`")
		}
	}
	return list
}
