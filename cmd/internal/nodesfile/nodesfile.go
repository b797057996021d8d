// Package nodesfile reads nodes.yaml again while a program with an actuator runs: when the actuator
// reloads, and when the file changes.
package nodesfile

import (
	"context"
	"log/slog"
	"os"
	"time"

	"github.com/laxity/laxity/actuator/config"
	"github.com/laxity/laxity/actuator/nodes"
)

// Open reads the list, and returns load so that it reads the list again, too, as the actuator's
// Options.Load does. Without load the configuration stays c; without a path there is no list, and load
// is returned as it is.
func Open(path string, c config.Config, load func() (config.Config, error)) (*nodes.File, func() (config.Config, error), error) {
	list, err := nodes.Open(path)
	if err != nil || path == "" {
		return list, load, err
	}
	return list, func() (config.Config, error) {
		next := c
		if load != nil {
			var err error
			if next, err = load(); err != nil {
				return c, err
			}
		}
		return next, list.Reload() // last, since it takes effect at once: a bad file of the two changes nothing
	}, nil
}

// Every is how often a changed file is looked for: service discovery writes such files at any time.
const Every = 5 * time.Second

// Follow returns what calls reload whenever the file has changed, until its context ends. A bad file is logged
// once, and the old list stays.
func Follow(path string, every time.Duration, reload func() error, logger *slog.Logger) func(context.Context) error {
	last, _ := os.Stat(path)
	return func(ctx context.Context) error {
		if path == "" {
			<-ctx.Done()
			return nil
		}
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return nil
			case <-tick.C:
			}
			now, err := os.Stat(path)
			if err != nil || last != nil && now.ModTime().Equal(last.ModTime()) && now.Size() == last.Size() && os.SameFile(now, last) {
				continue // while it is being replaced it may be away
			}
			last = now
			if err := reload(); err != nil {
				logger.Error("the old list of nodes stays", "err", err)
				continue
			}
			logger.Info("read the list of nodes again", "file", path)
		}
	}
}
