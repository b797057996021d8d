package watch

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/laxity/laxity/actuator/journal"
	"github.com/laxity/laxity/internal/sandbox"
)

// lacksFile is where a guardian says what its sandbox keeps from it: it answers to nobody,
// and its actuator tells it.
func lacksFile(stateDir string) string { return filepath.Join(stateDir, "guardian-lacks.json") }

// KeepLacks writes what a guardian that begins lacks, and nothing where it lacks nothing or
// another one watches.
func KeepLacks(stateDir string, lacks []sandbox.Lack) error {
	if journal.Taken(journal.GuardianLock(stateDir)) {
		return nil
	}
	if len(lacks) == 0 {
		if err := os.Remove(lacksFile(stateDir)); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	}
	text, err := json.Marshal(lacks)
	if err != nil {
		return err
	}
	return journal.WriteFile(lacksFile(stateDir), append(text, '\n'))
}

// ReadLacks returns what a guardian wrote; one that cannot be read says nothing.
func ReadLacks(stateDir string) (all []sandbox.Lack) {
	text, err := os.ReadFile(lacksFile(stateDir))
	if err != nil || json.Unmarshal(text, &all) != nil {
		return nil
	}
	return all
}
