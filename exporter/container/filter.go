package container

import "context"

// Filtered is a Source of the containers for which Keep is true. It does not report the
// others.
type Filtered struct {
	Source
	Keep func(Container) bool
}

// List implements Source.
func (f Filtered) List(ctx context.Context) ([]Container, error) {
	all, err := f.Source.List(ctx)
	if err != nil {
		return nil, err
	}
	var kept []Container
	for _, c := range all {
		if f.Keep(c) {
			kept = append(kept, c)
		}
	}
	return kept, nil
}

// Watch implements Source. It filters only events that carry a container. The reader ignores
// other events of a container that it does not know.
func (f Filtered) Watch(ctx context.Context) (<-chan Event, error) {
	all, err := f.Source.Watch(ctx)
	if err != nil {
		return nil, err
	}
	kept := make(chan Event)
	go func() {
		defer close(kept)
		for e := range all {
			if e.Container != nil && !f.Keep(*e.Container) {
				continue
			}
			select {
			case kept <- e:
			case <-ctx.Done():
				return
			}
		}
	}()
	return kept, nil
}
