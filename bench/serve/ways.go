package serve

import (
	"context"
	"errors"
	"fmt"
	"os"
)

// way is one that is set up.
type way struct {
	release func() error // lets go whoever is held
	end     func() error
}

func nothing() error { return nil }

// begin sets a way up.
func (m *measurement) begin(ctx context.Context, s *set) (way, error) {
	switch s.way {
	case laxity:
		release, err := m.Up(ctx, m.env, s.way)
		return way{release, nothing}, err
	case always:
		release, err := m.Up(ctx, m.env, s.way, "--arbitrate=always")
		return way{release, nothing}, err
	case withMPS, mpsPriority:
		err := s.mps.Start(ctx, m.Tenants, fmt.Sprintf("laxity-bench-serve-%d-%d-%s", os.Getpid(), s.run, s.way))
		return way{nothing, func() error { return errors.Join(s.remove(), s.mps.Stop()) }}, err
	default:
		return way{nothing, nothing}, nil
	}
}
