package bench

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// An experiment may be measured in portions (Experiment.Portions), as where a GPU is there for
// minutes: all together are one result. CheckPortion says what they must have in common.

// partial is added to the name of a result that was stopped or failed before it was whole.
const partial = ".partial"

// Partial is the result under the name of one that is not whole. Its runs are.
func (r Result) Partial() Result {
	r.Name += partial
	return r
}

// FirstRun is the number of the first run that an experiment takes: from 1, after those of
// earlier portions.
func (env Env) FirstRun() int {
	last := 0
	for _, r := range env.Earlier {
		if n := r.Num("run"); n > float64(last) {
			last = int(n)
		}
	}
	return last + 1
}

// Repeat measures so many runs, numbered from FirstRun on. After an error it returns the rows of the runs
// before it.
func (env Env) Repeat(runs int, measure func(number int) ([]Row, error)) (rows []Row, err error) {
	first := env.FirstRun()
	for i := range runs {
		found, err := measure(first + i)
		if err != nil {
			return rows, err
		}
		rows = append(rows, found...)
	}
	return rows, nil
}

// Turned returns the ways in the order of a run: no way is always first, in portions of one run either.
func Turned(ways []string, run int) []string {
	if len(ways) == 0 {
		return nil
	}
	n := run % len(ways)
	return slices.Concat(ways[n:], ways[:n])
}

// SettingsOf returns the settings that all rows of a result share: what --set says, but for
// how much of the experiment is measured (Setting.Part).
func (e Experiment) SettingsOf(env Env) map[string]string {
	shared := map[string]string{}
	maps.Copy(shared, env.Args)
	for _, s := range e.Settings {
		if s.Part {
			delete(shared, s.Name)
		}
	}
	if env.Quick {
		shared["quick"] = "true"
	}
	return shared
}

// CheckPortion returns an error that says what keeps a portion from being added to an earlier
// one: another experiment, machine, commit, seed or setting, or changes that no commit has.
func CheckPortion(earlier, later Result) error {
	same := func(what, a, b string) error {
		if a == b {
			return nil
		}
		return fmt.Errorf("the stored result is of another %s (%s; now %s): rows of both never make one figure; measure all of it again", what, orNone(a), orNone(b))
	}
	name := strings.TrimSuffix(earlier.Name, partial)
	for _, err := range []error{
		same("experiment", name, later.Name), same("machine", earlier.Machine, later.Machine), same("commit", earlier.Commit, later.Commit),
		same("--seed", fmt.Sprint(earlier.Seed), fmt.Sprint(later.Seed)), committed(later.Commit),
	} {
		if err != nil {
			return err
		}
	}
	names := slices.Concat(slices.Collect(maps.Keys(earlier.Settings)), slices.Collect(maps.Keys(later.Settings)))
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		if err := same("--set "+name, earlier.Settings[name], later.Settings[name]); err != nil {
			return err
		}
	}
	return nil
}

// dirty ends the commit of a program with changes that are not committed (the Makefile's COMMIT).
const dirty = "-dirty"

func committed(commit string) error {
	if strings.HasSuffix(commit, dirty) {
		return fmt.Errorf("this program has changes that are not committed (%s): two of its portions may be of different code; commit them and build again", commit)
	}
	return nil
}

func orNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}

// Stamp gives each row the commit, and the run and the time where the experiment did not: then
// all of the portion is one run. Time is when it began, Unix seconds.
func Stamp(rows []Row, commit string, run int, began time.Time) {
	for _, r := range rows {
		r["commit"] = commit
		if _, ok := r["run"]; !ok {
			r["run"] = run
		}
		if _, ok := r["time"]; !ok {
			r["time"] = float64(began.UnixMilli()) / 1e3
		}
	}
}
