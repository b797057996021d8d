package evaluator

import (
	"bytes"
	"log/slog"
	"testing"
)

func TestTheStorageIsHeardOnlyInTrouble(t *testing.T) {
	var out bytes.Buffer
	log := slog.New(troubles{slog.NewTextHandler(&out, nil)}).With("part", "head").WithGroup("wal")
	log.Info("not found")
	if out.Len() > 0 {
		t.Errorf("said: %s", &out)
	}
	log.Warn("corrupt")
	if !bytes.Contains(out.Bytes(), []byte("corrupt")) || !bytes.Contains(out.Bytes(), []byte("part=head")) {
		t.Errorf("said: %q", &out)
	}
}
