package experiments

import (
	"io/fs"
	"strings"

	"github.com/laxity/laxity/bench"
)

// Stored reads every result in a folder, by experiment.
func Stored(results fs.FS) (map[string]bench.Result, error) {
	names, err := fs.Glob(results, "*.json")
	if err != nil {
		return nil, err
	}
	all := map[string]bench.Result{}
	for _, name := range names {
		if strings.HasSuffix(name, ".partial.json") {
			continue // of a run that was stopped
		}
		r, err := bench.ReadResult(results, name)
		if err != nil {
			return nil, err
		}
		all[strings.TrimSuffix(name, ".json")] = r
	}
	return all, nil
}
