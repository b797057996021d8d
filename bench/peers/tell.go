package peers

import (
	"bytes"
	"strconv"
	"strings"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/laxity/laxity/bench"
)

// known is a container as its engine knows it.
type known struct {
	name, id string
	pid      int
}

// fact is something that a series may tell of a container.
type fact struct {
	key  string
	told func(metric string) bool
}

func has(metric string, words ...string) bool {
	for _, w := range words {
		if !strings.Contains(metric, w) {
			return false
		}
	}
	return true
}

var facts = []fact{
	{"named", func(string) bool { return true }},
	{"gpu_memory", func(m string) bool {
		return has(m, "gpu", "memory", "bytes") || has(m, "accelerator", "memory", "bytes")
	}},
	{"gpu_tasks", func(m string) bool { return has(m, "gpu", "task") }},
	{"deadline", func(m string) bool { return has(m, "deadline") }},
}

// tell counts what a page has: bytes, series, and of how many containers it tells each fact. pids counts those
// of which it tells a process by its PID.
func tell(page []byte, all []known, row bench.Row) error {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(page))
	if err != nil {
		return err
	}
	told := map[string]map[string]bool{"pids": {}}
	for _, f := range facts {
		told[f.key] = map[string]bool{}
	}
	for name, family := range families {
		for _, metric := range family.GetMetric() {
			c, byPID := whose(metric, all)
			if c == "" {
				continue
			}
			if byPID {
				told["pids"][c] = true
				continue
			}
			for _, f := range facts {
				if f.told(name) {
					told[f.key][c] = true
				}
			}
		}
	}
	row["bytes"], row["series"] = len(page), bench.Series(page)
	for key, containers := range told {
		row[key] = len(containers)
	}
	return nil
}

// whose returns the container that a series names by name or id, or else by the PID of its process.
func whose(metric *dto.Metric, all []known) (container string, byPID bool) {
	for _, c := range all {
		for _, label := range metric.GetLabel() {
			if v := label.GetValue(); v == c.name || strings.Contains(v, c.id) {
				return c.name, false
			}
		}
	}
	for _, label := range metric.GetLabel() {
		if label.GetName() != "pid" {
			continue
		}
		for _, c := range all {
			if label.GetValue() == strconv.Itoa(c.pid) {
				return c.name, true
			}
		}
	}
	return "", false
}
