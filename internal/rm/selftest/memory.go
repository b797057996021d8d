package selftest

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/laxity/laxity/internal/replace"
)

// Recall reads the result for this driver and card from a file of Remember's; found is
// false if there is none. A file that cannot be read as one is an error, and can be
// overwritten.
func Recall(path, driver, gpu string) (r Result, found bool, err error) {
	all, err := read(path)
	r, found = all[key(driver, gpu)]
	return r, found, err
}

// Remember keeps a result in a file, in the place of an earlier one for the same driver
// and card. Results of other drivers are dropped: a driver that changed is tested anew.
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
