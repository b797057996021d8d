package tenant

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/laxity/laxity/internal/cc"
	"github.com/laxity/laxity/internal/needtest"
)

func TestTenantSaysWhatItLacks(t *testing.T) {
	if _, err := os.Stat("/dev/nvidiactl"); err == nil {
		t.Skip("there is a GPU")
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, err := Start(ctx, t.TempDir(), Options{Kind: Spin, Contexts: 1, Most: time.Second})
	if errors.Is(err, cc.ErrNoCompiler) {
		needtest.Compiler.Skip(t, err)
	}
	if err == nil || !strings.Contains(err.Error(), "tenant:") {
		t.Errorf("without a GPU: %v", err)
	}
}
