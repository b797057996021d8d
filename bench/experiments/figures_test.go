package experiments

import (
	"fmt"
	"math"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/laxity/laxity/bench"
)

// claim is a number in a row of docs/figures.md, and where a stored result has it: a figure
// (result#name), or a cell of its table (result|key|…|column, the keys are the row's first cells). Scale
// makes its unit that of the page; 0 is 1. Without a number it is what the cell says, as the none of a difference
// within the noise; the row has words of its own for it.
type claim struct {
	text, from string
	scale      float64
}

// sources are the claims of docs/figures.md, by the first words of a row.
var sources = map[string][]claim{
	"a task's start": {
		{"0.02", "events|laxity|start|MEDIAN ms", 0}, {"0.05", "events|laxity|start|p99", 0},
		{"240", "events|nvidia-smi + docker top|start|MEDIAN ms", 0}, {"540", "events|nvidia-smi + docker top|start|p99", 0},
	},
	"its end": {
		{"0.38", "events|laxity|end, context destroyed|MEDIAN ms", 0}, {"0.5", "events|laxity|end, context destroyed|p99", 0},
		{"0.39", "events|laxity|end, at exit|MEDIAN ms", 0}, {"0.7", "events|laxity|end, at exit|p99", 0},
		{"30", "events|nvidia-smi + docker top|end, context destroyed|MEDIAN ms", 0}, {"176", "events|nvidia-smi + docker top|end, context destroyed|p99", 0},
		{"79", "events|nvidia-smi + docker top|end, at exit|MEDIAN ms", 0}, {"202", "events|nvidia-smi + docker top|end, at exit|p99", 0},
	},
	"tasks missed": {{"0", "events#missed_tasks", 0}, {"0", "events-2gpus#wrong_gpu_tasks", 0}},
	"CPU and memory": {
		{"1.8", "cost|10|laxity|CPU % of a core", 0}, {"31", "cost|10|laxity|RssAnon MiB", 0},
		{"3.7", "cost|100|laxity|CPU % of a core", 0}, {"35", "cost|100|laxity|RssAnon MiB", 0},
		{"18.7", "cost|10|nvidia-smi + docker top|CPU % of a core", 0}, {"11", "cost|10|nvidia-smi + docker top|RssAnon MiB", 0},
		{"4.3", "cost|100|nvidia-smi + docker top|CPU % of a core", 0}, {"11", "cost|100|nvidia-smi + docker top|RssAnon MiB", 0},
	},
	"CPU scraped ten times": {
		{"6.3", "cost|10|laxity|SCRAPED 10/s", 0}, {"24.8", "cost|100|laxity|SCRAPED 10/s", 0},
		{"18.7", "cost|10|nvidia-smi + docker top|CPU % of a core", 0}, {"4.3", "cost|100|nvidia-smi + docker top|CPU % of a core", 0},
	},
	"CPU with 1,000 processes": {
		{"5.9", "growth|100|laxity|CPU % of a core", 0}, {"2.9", "growth|100|nvidia-smi + docker top|CPU % of a core", 0},
	},
	"observing 100 containers": {
		{"2.34", "peers|100|laxity|1|CPU s A MINUTE", 0}, {"38", "peers|100|laxity|1|RSS MiB", 0}, {"100", "peers|100|laxity|1|GPU TASKS", 0},
		{"20.0", "peers|100|cadvisor|1|CPU s A MINUTE", 0}, {"54", "peers|100|cadvisor|1|RSS MiB", 0}, {"0", "peers|100|cadvisor|1|GPU TASKS", 0},
		{"14.3", "peers|100|cadvisor-least|1|CPU s A MINUTE", 0}, {"45", "peers|100|cadvisor-least|1|RSS MiB", 0}, {"0", "peers|100|cadvisor-least|1|GPU TASKS", 0},
		{"0.78", "peers|100|nvidia-gpu-exporter|1|CPU s A MINUTE", 0}, {"18", "peers|100|nvidia-gpu-exporter|1|RSS MiB", 0}, {"0", "peers|100|nvidia-gpu-exporter|1|GPU TASKS", 0},
	},
	"the same, scraped every 15 s": {
		{"1.12", "peers|100|laxity|15|CPU s A MINUTE", 0}, {"10.5", "peers|100|cadvisor|15|CPU s A MINUTE", 0},
		{"9.0", "peers|100|cadvisor-least|15|CPU s A MINUTE", 0}, {"0.05", "peers|100|nvidia-gpu-exporter|15|CPU s A MINUTE", 0},
	},
	"a PyTorch step": {
		{"1.000", "overhead|small|process|RATIO", 0}, {"0.986 to 1.045", "overhead|small|process|25–75 %", 0},
		{"0.980", "overhead|small|busy|RATIO", 0}, {"0.962 to 1.01", "overhead|small|busy|25–75 %", 0},
		{"1.0000", "overhead|large|process|RATIO", 0}, {"0.9999", "overhead|large|busy|RATIO", 0},
		{"1.09", "overhead|paced|busy|RATIO", 0}, {"1.04 to 1.15", "overhead|paced|busy|25–75 %", 0},
	},
	"680 containers": {{"680", "zoo#zoo_containers", 0}, {"0", "zoo#zoo_stuck", 0}, {"0", "zoo#zoo_failed", 0}, {"0", "zoo#zoo_wrong", 0}, {"0", "zoo#zoo_stray", 0}},
	"a server's requests": {
		{"3.1", "serve|server|0|default|P99", 0},
		{"3.6 ms (2.6 to 4.2)", "serve|server|1|laxity|P99", 0}, {"3.0 ms (2.8 to 4.4)", "serve|server|4|laxity|P99", 0}, {"167", "serve|server|4|laxity|REQUESTS", 0},
		{"4.3 ms (4.3 to 4.6)", "serve|server|1|default|P99", 0}, {"10.9 ms (10.6 to 11.0)", "serve|server|4|default|P99", 0},
		{"13.6", "serve|server|1|mps|P99", 0}, {"36", "serve|server|4|mps|P99", 1e-3},
		{"3.2 ms (1.8 to 3.3)", "serve|server|1|mps-priority|P99", 0}, {"5.1 ms (4.8 to 5.4)", "serve|server|4|mps-priority|P99", 0},
	},
	"two servers": {
		{"1.7", "serve-scenes|server-10ms|0|default|P99", 0},
		{"2.0", "serve-scenes|server-10ms|2|laxity|P99", 0}, {"2.1", "serve-scenes|server-50ms|2|laxity|P99", 0}, {"none", "serve-scenes|server-10ms|2|laxity|VS DEFAULT", 0},
		{"3.9", "serve-scenes|server-10ms|2|default|P99", 0}, {"3.7", "serve-scenes|server-50ms|2|default|P99", 0},
	},
	"a decode loop": {
		{"0.96", "serve-scenes|decode|0|default|P99", 0}, {"1.07", "serve-scenes|decode|1|laxity|P99", 0}, {"11.7", "serve-scenes|decode|1|laxity|MOST", 0}, {"0.8", "serve-scenes|decode|1|laxity|STEPS/s", 0},
		{"3.40", "serve-scenes|decode|1|default|P99", 0}, {"3.42", "serve-scenes|decode|1|default|MOST", 0}, {"9.0", "serve-scenes|decode|1|default|STEPS/s", 0},
	},
	"a server of texts": {
		{"91", "serve-scenes|text|0|default|MOST", 0}, {"142", "serve-scenes|text|1|laxity|MOST", 0}, {"140", "serve-scenes|text|2|laxity|MOST", 0},
		{"9.8", "serve-scenes|text|1|laxity|STEPS/s", 0}, {"9.8", "serve-scenes|text|2|laxity|STEPS/s", 0}, {"1.8", "serve-scenes|text|2|laxity|FEWEST/s", 0},
		{"337", "serve-scenes|text|1|default|MOST", 0}, {"1313", "serve-scenes|text|2|default|MOST", 0},
		{"10.2", "serve-scenes|text|1|default|STEPS/s", 0}, {"10", "serve-scenes|text|2|default|STEPS/s", 0}, {"5.0", "serve-scenes|text|2|default|FEWEST/s", 0},
	},
	"steps a second of all trainers": {
		{"none", "serve|server|1|laxity|VS DEFAULT", 0}, {"none", "serve|server|4|laxity|VS DEFAULT", 0}, {"0.6", "serve|server|4|laxity|FEWEST/s", 0},
		{"12.8", "serve|server|1|default|STEPS/s", 0}, {"11.4", "serve|server|4|default|STEPS/s", 0}, {"2.8", "serve|server|4|default|FEWEST/s", 0},
	},
	"shares of 10": {
		{"8.9", "shares|all want it|10%|laxity|PART %", 0}, {"30.5", "shares|all want it|30%|laxity|PART %", 0}, {"60.6", "shares|all want it|60%|laxity|PART %", 0},
		{"33.3", "shares|all want it|10%|default|PART %", 0}, {"33.3", "shares|all want it|30%|default|PART %", 0}, {"33.3", "shares|all want it|60%|default|PART %", 0},
	},
	"the same, with the third idle": {
		{"22.4", "shares|60 % idle|10%|laxity|PART %", 0}, {"77.6", "shares|60 % idle|30%|laxity|PART %", 0},
		{"50", "shares|60 % idle|10%|default|PART %", 0}, {"50", "shares|60 % idle|30%|default|PART %", 0},
	},
	"steps of all three": {{"1.08", "shares#shares_steps_vs_default", 0}},
	"a running kernel off": {
		{"0.74", "channels#kernel_off_median_ms", 0}, {"0.97", "channels#kernel_off_p99_ms", 0},
		{"20", "channels#paused_kernels_that_ran_on", 0}, {"20", "channels#paused_kernels_that_ran_on", 0},
	},
	"and on again":            {{"0.68", "channels#kernel_on_median_ms", 0}, {"0.91", "channels#kernel_on_p99_ms", 0}},
	"GPU-seconds of two":      {{"1.9", "account#account_both_gpu_seconds_error", 100}, {"2.6", "account#account_both_energy_error", 100}},
	"the same by an exporter": {{"3.2", "account#account_unseen_gpu_seconds_error", 100}, {"113", "account#account_unseen_energy_error", 100}},
	"eight large tasks": {
		{"29.6", "arbitrate|large|8|laxity|MAKESPAN s", 0}, {"17.8", "arbitrate|large|8|laxity|MEAN TURNAROUND s", 0},
		{"33.8", "arbitrate|large|8|default|MAKESPAN s", 0}, {"33.4", "arbitrate|large|8|default|MEAN TURNAROUND s", 0},
		{"29.3", "arbitrate|large|8|mps|MAKESPAN s", 0}, {"23.4", "arbitrate|large|8|mps|MEAN TURNAROUND s", 0},
	},
	"twelve small tasks": {
		{"3.1", "arbitrate|small|12|laxity|MAKESPAN s", 0}, {"2.6", "arbitrate|small|12|laxity|MEAN TURNAROUND s", 0},
		{"3.6", "arbitrate|small|12|default|MAKESPAN s", 0}, {"3.3", "arbitrate|small|12|default|MEAN TURNAROUND s", 0},
		{"2.7", "arbitrate|small|12|mps|MAKESPAN s", 0}, {"2.3", "arbitrate|small|12|mps|MEAN TURNAROUND s", 0},
	},
	"eight tasks with tight deadlines": {
		{"7 of 8", "arbitrate|deadlines|8|edf|HITS", 0}, {"8 of 8", "arbitrate|deadlines|8|llf|HITS", 0},
		{"0 of 8", "arbitrate|deadlines|8|default|HITS", 0}, {"2 of 8", "arbitrate|deadlines|8|mps|HITS", 0},
	},
	"sixty tasks that arrive at random": {
		{"88.9 %", "mixed|mixed|60|edf|HITS", 0}, {"83.3 %", "mixed|mixed|60|llf|HITS", 0},
		{"71.1 %", "mixed|mixed|60|default|HITS", 0}, {"82.8 %", "mixed|mixed|60|mps|HITS", 0}, {"87.2 %", "mixed|mixed|60|ideal|HITS", 0},
	},
	"two containers that wait": {
		{"100", "deadlock|two|laxity|ALL ENDED", 0}, {"100", "deadlock|two|laxity|ROUNDS", 0},
		{"100", "deadlock-2gpus|ring|laxity|ALL ENDED", 0}, {"100", "deadlock-2gpus|ring|laxity|ROUNDS", 0},
		{"0", "deadlock|two|default|ALL ENDED", 0}, {"5", "deadlock|two|default|ROUNDS", 0},
		{"0", "deadlock-2gpus|ring|default|ALL ENDED", 0}, {"5", "deadlock-2gpus|ring|default|ROUNDS", 0},
	},
	"twelve tasks": {
		{"0 of 12", "oversubscribe#oversubscribe_failed", 0}, {"25.2", "oversubscribe|equal|laxity|MAKESPAN s", 0},
		{"9", "oversubscribe|equal|default|FAILED", 0}, {"0", "oversubscribe|equal|one|FAILED", 0}, {"32.0", "oversubscribe|equal|one|MAKESPAN s", 0},
		{"0", "oversubscribe|equal|static|FAILED", 0}, {"23.6", "oversubscribe|equal|static|MAKESPAN s", 0},
	},
	"an allocation below": {{"0.3", "guard#guard_alloc_us_q1", 0}, {"5.7", "guard#guard_alloc_us_q3", 0}, {"44", "guard|without|ALLOCATION µs, MEDIAN", 0}},
	"one near the limit":  {{"393", "guard#guard_asked_us", 0}, {"44", "guard|without|ALLOCATION µs, MEDIAN", 0}},
	"a training step of PyTorch": {
		{"0.1", "limits#guard_step_more_ms_q1", 0}, {"0.8", "limits#guard_step_more_ms_q3", 0},
		{"2.4", "limits#guard_step_no_caching_more_ms_q1", 0}, {"9.0", "limits#guard_step_no_caching_more_ms_q3", 0},
		{"15.8", "limits|training step|without|REFUSED", 0},
		{"70.4", "limits|training step, PYTORCH_NO_CUDA_MEMORY_CACHING=1|without|REFUSED", 0},
	},
	"a container swapped out and back 500": {
		{"500", "swapcycles#swap_cycles", 0}, {"0", "swapcycles#swap_cycles_lost", 0}, {"0", "swapcycles#swap_cycles_wrong", 0}, {"391", "swapcycles|500|RESULTS", 0},
	},
	"a container with 1.4": {
		{"1.08", "swap|1.4|laxity|CYCLE s", 0}, {"8.6", "swap|13|laxity|CYCLE s", 0}, {"27.5", "swap|40|laxity|CYCLE s", 0},
		{"1.08", "swap|1.4|driver|CYCLE s", 0}, {"9.2", "swap|13|driver|CYCLE s", 0}, {"25.2", "swap|40|driver|CYCLE s", 0},
	},
}

// unstored are rows whose figures no experiment stores, and why.
var unstored = map[string]string{"a scrape of 100 containers": "a Go benchmark; the row names its command"}

// Every row of docs/figures.md says what the stored results say, to the digits that it has, and no
// other number; README has some of these rows, word by word.
func TestFiguresInTheDocuments(t *testing.T) {
	all, err := Stored(os.DirFS("../results"))
	if err != nil {
		t.Fatal(err)
	}
	rows := tableRows(t, "../../docs/figures.md")
	for _, row := range rows {
		if has(unstored, row) != "" {
			continue
		}
		key := has(sources, row)
		if key == "" {
			t.Errorf("no source for the row %q", row)
			continue
		}
		var given []string
		for _, c := range sources[key] {
			value, err := c.value(all)
			if err != nil {
				t.Errorf("%s: %v", key, err)
			} else if err := c.agrees(value); err != nil {
				t.Errorf("%s: %v", key, err)
			}
			given = append(given, numbers.FindAllString(c.text, -1)...)
		}
		for _, n := range numbers.FindAllString(row, -1) {
			i := slices.Index(given, n)
			if i < 0 {
				if !slices.Contains(wording[key], n) {
					t.Errorf("%s: no source for %s in %q", key, n, row)
				}
				continue
			}
			given = slices.Delete(given, i, i+1)
		}
		if err := rightCard(key, row, all); err != nil {
			t.Error(err)
		}
		for _, n := range given {
			if !slices.Contains(wording[key], n) {
				t.Errorf("%s: %s is not in %q", key, n, row)
			}
		}
	}
	for key := range sources {
		if !slices.ContainsFunc(rows, func(r string) bool { return strings.HasPrefix(r, "| "+key) }) {
			t.Errorf("no row begins with %q", key)
		}
	}
	for _, row := range tableRows(t, "../../README.md") {
		if !slices.Contains(rows, row) {
			t.Errorf("README has a row that docs/figures.md has not: %q", row)
		}
	}
}

// continued are rows that say nothing of where they are from: the row before does.
var continued = []string{"its end", "steps a second of all trainers", "the same, scraped every 15 s", "the same by an exporter", "the same, with the third idle", "steps of all three", "and on again", "one near the limit"}

// rightCard checks that a row names the card that it is from, but for an H200, which the page names for all.
func rightCard(key, row string, all map[string]bench.Result) error {
	if slices.Contains(continued, key) {
		return nil
	}
	for _, c := range sources[key] {
		name, _, _ := strings.Cut(c.from, "#")
		name, _, _ = strings.Cut(name, "|")
		machine := all[name].Machine
		for _, card := range []struct{ name, said string }{{"H100", "H100"}, {"simulated", "without a GPU"}} {
			if strings.Contains(machine, card.name) && !strings.Contains(row, card.said) {
				return fmt.Errorf("%s: %s is of %s; the row does not say %q", key, name, machine, card.said)
			}
		}
	}
	return nil
}

// wording are numbers of a row that are no measurement: what the experiment is made of, and the 1 that
// ratios compare with.
var wording = map[string][]string{
	"tasks missed":                 {"200"},
	"CPU and memory":               {"10", "100", "20"},
	"observing 100 containers":     {"100"},
	"CPU with 1,000 processes":     {"1", "000", "100"},
	"the same, scraped every 15 s": {"15"},
	"a PyTorch step":               {"30", "1", "000", "100", "60"},
	"680 containers":               {"24"},
	"two servers":                  {"10", "50"},
	"a server of texts":            {"100"},
	"shares of 10":                 {"10", "30", "60"},
	"steps of all three":           {"1"},
	"a running kernel off":         {"1", "000"},
	"GPU-seconds of two":           {"50"},
	"twelve tasks":                 {"12", "40", "4"},
	"a container with 1.4":         {"1.4", "13", "40"},
}

var numbers = regexp.MustCompile(`\b[0-9]+(?:\.[0-9]+)?`)

// tableRows returns the rows of the table | | Laxity | alternative |.
func tableRows(t *testing.T, path string) (rows []string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	_, table, ok := strings.Cut(string(text), "| | Laxity | alternative |\n|---|---|---|\n")
	if !ok {
		t.Fatalf("%s has no table of figures", path)
	}
	for line := range strings.Lines(table) {
		if !strings.HasPrefix(line, "|") {
			break
		}
		rows = append(rows, strings.TrimSpace(line))
	}
	return rows
}

// has returns the key that a row begins with; "" without one.
func has[V any](m map[string]V, row string) string {
	for key := range m {
		if strings.HasPrefix(row, "| "+key) {
			return key
		}
	}
	return ""
}

// value is what the stored result has, as text.
func (c claim) value(all map[string]bench.Result) (string, error) {
	if name, figure, ok := strings.Cut(c.from, "#"); ok {
		i := slices.IndexFunc(all[name].Figures, func(f bench.Figure) bool { return f.Name == figure })
		if i < 0 {
			return "", fmt.Errorf("there is no figure %s", c.from)
		}
		f := all[name].Figures[i]
		return strconv.FormatFloat(f.Value, 'g', -1, 64) + " " + f.Unit, nil
	}
	path := strings.Split(c.from, "|")
	name, keys, column := path[0], path[1:len(path)-1], path[len(path)-1]
	e, ok := Find(name)
	if !ok {
		return "", fmt.Errorf("there is no experiment %s", name)
	}
	table := e.Table(all[name].Rows)
	if len(table) == 0 {
		return "", fmt.Errorf("%s has no table", name)
	}
	at := slices.Index(table[0], column)
	for _, line := range table[1:] {
		if at >= 0 && len(line) > at && slices.Equal(line[:len(keys)], keys) {
			return line[at], nil
		}
	}
	return "", fmt.Errorf("there is no cell %s", c.from)
}

// agrees checks that a stored value, rounded to the digits of the claim, is the claim.
func (c claim) agrees(stored string) error {
	claimed := numbers.FindAllString(c.text, -1)
	found := numbers.FindAllString(stored, -1)
	if len(claimed) == 0 && stored != c.text {
		return fmt.Errorf("%s is %s, the page says %s", c.from, stored, c.text)
	}
	if len(found) < len(claimed) {
		return fmt.Errorf("%s is %s, the page says %s", c.from, stored, c.text)
	}
	for i, n := range claimed {
		v, err := strconv.ParseFloat(found[i], 64)
		if err != nil {
			return err
		}
		if c.scale != 0 {
			v *= c.scale
		}
		_, decimals, _ := strings.Cut(n, ".")
		want, _ := strconv.ParseFloat(n, 64)
		if half := 0.5 * math.Pow(10, -float64(len(decimals))); math.Abs(v-want) > half*(1+1e-9) {
			return fmt.Errorf("%s is %s, the page says %s", c.from, stored, c.text)
		}
	}
	return nil
}
