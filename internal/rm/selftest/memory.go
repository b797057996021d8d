package selftest

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/laxity/laxity/internal/replace"
)

// Recall reads the result for this driver and card from a file that Remember wrote; found is false
// if there is none. A file that cannot be decoded is an error, and may be overwritten.
func Recall(path, driver, gpu string) (r Result, found bool, err error) {
	all, err := read(path)
	r, found = all[key(driver, gpu)]
	return r, found, err
}

// Remember writes a result to a file, in place of an earlier one for the same driver and card. It
// drops results of other drivers: a changed driver is tested anew.
func Remember(path string, r Result) error {
	all, err := read(path)
	if err != nil || all == nil {
		all = map[string]Result{}
	}
	for k, old := range all {
		if old.Driver != r.Driver {
			delete(all, k)
		}
	}
	all[key(r.Driver, r.GPU)] = r
	text, err := json.MarshalIndent(all, "", "  ")
	if err != nil {
		return err
	}
	if err := replace.File(path, append(text, '\n'), 0o644); err != nil {
		return fmt.Errorf("remember the self-test: %w", err)
	}
	return nil
}

func key(driver, gpu string) string { return driver + " " + gpu }

func read(path string) (map[string]Result, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	var all map[string]Result
	if err := json.Unmarshal(text, &all); err != nil {
		return nil, fmt.Errorf("results of self-tests in %s: %w", path, err)
	}
	return all, nil
}
