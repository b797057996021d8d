package allinone

import (
	"context"
	"errors"
	"testing"
)

// What the actuator could not release is said, whichever part ends first; nothing is said twice.
func TestPartsSayWhatFailed(t *testing.T) {
	broken, left := errors.New("broken"), errors.New("containers are still paused")
	ends := func(err error) func(context.Context) error {
		return func(ctx context.Context) error { <-ctx.Done(); return err }
	}
	fails := func(err error) func(context.Context) error {
		return func(context.Context) error { return err }
	}
	for name, tt := range map[string]struct {
		actuator, other func(context.Context) error
		signal          bool
		want            string
	}{
		"a signal":                            {ends(nil), ends(nil), true, ""},
		"a signal, and containers are left":   {ends(left), ends(context.Canceled), true, "actuator: " + left.Error()},
		"the other fails":                     {ends(nil), fails(broken), false, "other: broken"},
		"the other fails, and some are left":  {ends(left), fails(broken), false, "other: broken\nactuator: " + left.Error()},
		"the actuator fails":                  {fails(broken), ends(context.Canceled), false, "actuator: broken"},
		"the other ends, and nothing is said": {ends(nil), fails(nil), false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if tt.signal {
				cancel()
			}
			var text string
			if err := runParts(ctx, part{"actuator", tt.actuator, true}, part{"other", tt.other, false}); err != nil {
				text = err.Error()
			}
			if text != tt.want {
				t.Errorf("it ended with %q, want %q", text, tt.want)
			}
		})
	}
}
