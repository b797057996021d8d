package docs_test

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/laxity/laxity/internal/reference"
	"github.com/laxity/laxity/rules"
)

type ruleFile struct {
	Groups []struct {
		Name  string
		Rules []rule
	}
}

type rule struct {
	Record, Alert, Expr, For string
	Labels, Annotations      map[string]string
}

func readRules(t *testing.T, name string) (f ruleFile) {
	t.Helper()
	raw, err := fs.ReadFile(rules.FS, name)
	if err == nil {
		err = yaml.Unmarshal(raw, &f)
	}
	if err != nil {
		t.Fatal(err)
	}
	return f
}

const runbook = "https://github.com/laxity/laxity/blob/main/docs/operations.md#"

func TestReferenceOfRules(t *testing.T) {
	described := described(t)
	var b strings.Builder
	b.WriteString("# Alerting and recording rules\n\nOf [rules/alerts.yml](../../rules/alerts.yml) and [rules/recording.yml](../../rules/recording.yml); why they are as they are is in\n[rules/README.md](../../rules/README.md), what to do when one fires in [operations](../operations.md).\n\n## Alerts\n\n| alert | says | for | `action` | severity |\n|---|---|---|---|---|\n")
	var exprs strings.Builder
	for _, g := range readRules(t, "alerts.yml").Groups {
		for _, r := range g.Rules {
			fmt.Fprintf(&b, "| [`%s`](../operations.md#%s) | %s | %s | %s | %s |\n", r.Alert, strings.ToLower(r.Alert),
				reference.Cell(readable(r.Annotations["summary"])), r.For, r.Labels["action"], r.Labels["severity"])
			fmt.Fprintf(&exprs, "\n### %s\n\n```promql\n%s\n```\n", r.Alert, strings.TrimSpace(r.Expr))
		}
	}
	b.WriteString("\n## Recorded series\n\n| series | by | value |\n|---|---|---|\n")
	seen := map[string]bool{}
	for _, g := range readRules(t, "recording.yml").Groups {
		for _, r := range g.Rules {
			if seen[r.Record] {
				continue
			}
			seen[r.Record] = true
			row, ok := described[r.Record]
			if !ok {
				t.Errorf("rules/README.md does not say what %s is: add a row to its table", r.Record)
			}
			fmt.Fprintf(&b, "| `%s` | %s |\n", r.Record, row)
			fmt.Fprintf(&exprs, "\n### %s\n\n```promql\n%s\n```\n", r.Record, strings.TrimSpace(r.Expr))
		}
	}
	b.WriteString("\n## Expressions\n" + exprs.String())
	reference.Keep(t, "rules.md", b.String())
}

// readable puts names in the place of a summary's templates.
func readable(summary string) string {
	s := regexp.MustCompile(`\{\{ \$labels\.(\w+) \}\}`).ReplaceAllString(summary, "$1")
	return regexp.MustCompile(`\{\{ \$value[^}]*\}\}`).ReplaceAllString(s, "…")
}

// described are the rows of the tables in rules/README.md, without the names.
func described(t *testing.T) map[string]string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(reference.Root(), "rules", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string]string{}
	for _, m := range regexp.MustCompile("(?m)^\\| ((?:`[a-z_]+:[a-z_:]+`(?:, )?)+) \\| (.*) \\|$").FindAllStringSubmatch(string(text), -1) {
		for _, name := range strings.Split(m[1], ", ") {
			rows[strings.Trim(name, "`")] = m[2]
		}
	}
	return rows
}

// Every alert has a section in docs/operations.md, to which its runbook_url leads,
// and no section is about an alert that does not exist.
func TestRunbooks(t *testing.T) {
	text, err := os.ReadFile("operations.md")
	if err != nil {
		t.Fatal(err)
	}
	sections := map[string]string{}
	for _, m := range regexp.MustCompile(`(?m)^### (\w+)$`).FindAllStringSubmatch(string(text), -1) {
		sections[strings.ToLower(m[1])] = m[1]
	}
	for _, g := range readRules(t, "alerts.yml").Groups {
		for _, r := range g.Rules {
			anchor := strings.ToLower(r.Alert)
			if got := r.Annotations["runbook_url"]; got != runbook+anchor {
				t.Errorf("rules/alerts.yml: %s: runbook_url is %q: write %s%s", r.Alert, got, runbook, anchor)
			}
			if sections[anchor] != r.Alert {
				t.Errorf("docs/operations.md has no section `### %s`: say there what it means, what to do and how to recover", r.Alert)
			}
			delete(sections, anchor)
		}
	}
	for _, name := range sections {
		t.Errorf("docs/operations.md: no alert is called %s; sections of the third level are alerts", name)
	}
}
