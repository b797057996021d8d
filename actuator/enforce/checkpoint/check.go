package checkpoint

import (
	"context"
	"fmt"
	"os"
)

// oldest is the CUDA version of the oldest driver with the checkpoint API, 570.
const oldest = 12080

// Check returns nil if containers can be swapped on this machine. Else the error wraps ErrUnavailable
// and says what is missing of driver, functions and permissions, and what would help.
func Check(ctx context.Context, h *Helper) error {
	if os.Geteuid() != 0 {
		return fmt.Errorf("%w: checkpointing other users' processes needs root", ErrUnavailable)
	}
	hello, err := h.Start(ctx)
	switch {
	case err != nil:
		return err
	case hello.Version != 0 && hello.Version < oldest:
		return fmt.Errorf("%w: the driver speaks CUDA %d.%d; 12.8 is needed (driver 570)", ErrUnavailable, hello.Version/1000, hello.Version%1000/10)
	}
	if _, err := h.GPUs(ctx); err != nil {
		return fmt.Errorf("%w: how much memory is free cannot be read: %w", ErrUnavailable, err)
	}
	return nil
}
