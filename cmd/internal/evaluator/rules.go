package evaluator

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/rules"
)

// parsedRules are the contents of rules files by name. It is the rule manager's
// loader, so that the manager never reads a file: embedded files have no path,
// and what was checked is what is loaded.
type parsedRules struct {
	files  map[string]*rulefmt.RuleGroups
	names  []string
	parser parser.Parser
}

// Load implements rules.GroupLoader.
func (p parsedRules) Load(name string, _ bool, _ model.ValidationScheme) (*rulefmt.RuleGroups, []error) {
	if g, ok := p.files[name]; ok {
		return g, nil
	}
	return nil, []error{fmt.Errorf("%s: %w", name, fs.ErrNotExist)}
}

// Parse implements rules.GroupLoader.
func (p parsedRules) Parse(query string) (parser.Expr, error) { return p.parser.ParseExpr(query) }

func readRules(fsys fs.FS, paths []string, p parser.Parser, logger *slog.Logger) (parsedRules, error) {
	parsed := parsedRules{files: map[string]*rulefmt.RuleGroups{}, parser: p}
	var errs []error
	add := func(name string, content []byte, err error) {
		if err != nil {
			errs = append(errs, fmt.Errorf("rules: %w", err))
			return
		}
		g, bad := rulefmt.Parse(content, false, model.UTF8Validation, p, logger)
		for _, err := range bad {
			errs = append(errs, fmt.Errorf("rules: %s:%w; `promtool check rules` says more", name, err))
		}
		parsed.files[name] = g
		parsed.names = append(parsed.names, name)
	}
	if fsys != nil {
		names, err := fs.Glob(fsys, "*.yml")
		if err != nil {
			return parsed, fmt.Errorf("rules: %w", err)
		}
		for _, name := range names {
			content, err := fs.ReadFile(fsys, name)
			add("built-in "+name, content, err)
		}
	}
	for _, path := range paths {
		content, err := os.ReadFile(path)
		add(path, content, err)
	}
	return parsed, errors.Join(errs...)
}

// groups makes rule groups in the order of files and of the groups in them, but
// those without alerts first, so that one evaluation carries a change through to
// the alerts.
func (p parsedRules) groups(opts rules.ManagerOptions, interval time.Duration) ([]*rules.Group, error) {
	opts.GroupLoader = p
	// The manager is used for making groups alone: it would evaluate by ticker.
	byKey, errs := rules.NewManager(&opts).LoadGroups(interval, labels.EmptyLabels(), "", nil, false, p.names...)
	if len(errs) > 0 {
		return nil, fmt.Errorf("rules: %w", errors.Join(errs...))
	}
	var recording, alerting []*rules.Group
	for _, name := range p.names {
		for _, rg := range p.files[name].Groups {
			g := byKey[rules.GroupKey(name, rg.Name)]
			alerts := g.AlertingRules()
			for _, r := range alerts {
				r.SetRestored(true) // without this a rule writes no ALERTS series
			}
			if len(alerts) == 0 {
				recording = append(recording, g)
			} else {
				alerting = append(alerting, g)
			}
		}
	}
	return append(recording, alerting...), nil
}
