package watch

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/laxity/laxity/actuator/journal"
	"github.com/laxity/laxity/internal/replace"
	"github.com/laxity/laxity/internal/sandbox"
)

// lacksFile is where a guardian writes which rights its sandbox withholds. The guardian has no
// API; its actuator reports them.
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
	return replace.File(lacksFile(stateDir), append(text, '\n'), 0o600)
}

// ReadLacks returns what a guardian wrote; nothing if it wrote no file, as one that lacks nothing.
func ReadLacks(stateDir string) (all []sandbox.Lack, err error) {
	text, err := os.ReadFile(lacksFile(stateDir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &all)
	}
	if err != nil {
		return nil, fmt.Errorf("read what the guardian lacks from %s: %w", lacksFile(stateDir), err)
	}
	return all, nil
}
