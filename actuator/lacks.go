package actuator

import (
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/laxity/laxity/actuator/journal"
	"github.com/laxity/laxity/internal/replace"
	"github.com/laxity/laxity/internal/sandbox"
)

// lacksFile is where a guardian says what its sandbox keeps from it: it answers to nobody,
// and its actuator tells it.
func lacksFile(stateDir string) string { return filepath.Join(stateDir, "guardian-lacks.json") }

// keepLacks writes what a guardian that begins lacks, and nothing where it lacks nothing.
func (o GuardianOptions) keepLacks() error {
	for _, l := range o.Lacks {
		o.Logger.Warn("the guardian's sandbox keeps from it what it needs", "what", l.What, "means", l.Means, "fix", l.Fix)
	}
	if journal.Taken(journal.GuardianLock(o.StateDir)) {
		return nil // another one watches, and this one ends
	}
	if len(o.Lacks) == 0 {
		if err := os.Remove(lacksFile(o.StateDir)); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	}
	text, err := json.Marshal(o.Lacks)
	if err != nil {
		return err
	}
	return replace.File(lacksFile(o.StateDir), append(text, '\n'), 0o600)
}

// readLacks returns what a guardian wrote; one that cannot be read says nothing.
func readLacks(stateDir string) (all []sandbox.Lack) {
	text, err := os.ReadFile(lacksFile(stateDir))
	if err != nil || json.Unmarshal(text, &all) != nil {
		return nil
	}
	return all
}

// warnOfLacks logs what the actuator's own sandbox keeps from it.
func warnOfLacks(lacks []sandbox.Lack, log *slog.Logger) {
	for _, l := range lacks {
		log.Warn("the actuator's sandbox keeps from it what it needs", "what", l.What, "means", l.Means, "fix", l.Fix)
	}
}
