package api

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"testing"

	"github.com/laxity/laxity/actuator/placement/placer"
)

// A question that waited too long for others may be asked again: that is no failure of the server.
func TestCodeOfAnError(t *testing.T) {
	s := &Server{o: Options{Logger: slog.New(slog.DiscardHandler)}}
	for err, want := range map[error]int{
		fmt.Errorf("others are answered: %w", context.DeadlineExceeded): 503,
		fmt.Errorf("its client is gone: %w", context.Canceled):          503,
		fmt.Errorf("release: %w", placer.ErrNotFound):                   404,
		errors.New("the disk is full"):                                  500,
	} {
		w := httptest.NewRecorder()
		if s.failed(w, err); w.Code != want {
			t.Errorf("%v: %d, want %d", err, w.Code, want)
		}
	}
}
