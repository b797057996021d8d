package mechanism

import (
	"cmp"
	"context"
	"log/slog"

	"github.com/laxity/laxity/actuator/config"
)

// held says how containers are held, and why so: by which proof, or for want of what.
type held struct {
	level    slog.Level
	how, why string
}

// How containers are held, for people.
const (
	byChannels = "by time slices, and channels off and on"
	byPauses   = "by pausing whole containers"
)

func (o Options) held(c config.Config, dryRun bool) held {
	switch {
	case dryRun:
		return held{slog.LevelInfo, "not at all", "--dry-run"}
	case !o.Hold.Channels():
		return held{slog.LevelInfo, byPauses, "--hold=" + string(o.Hold)}
	case c.Profile().Pauses:
		return held{slog.LevelInfo, byPauses, "--policy=" + c.Policy}
	case o.NoChannels != "":
		return held{slog.LevelWarn, byPauses, o.NoChannels}
	case o.byChannels() || o.NewChannels != nil:
		return held{slog.LevelInfo, byChannels, o.ChannelsProven}
	default:
		return held{slog.LevelWarn, byPauses, "this program has no way to control time slices and channels"}
	}
}

// LogHeld logs how containers are held; call it once, at the start. c must have its defaults.
func (o Options) LogHeld(ctx context.Context, c config.Config, dryRun bool, log *slog.Logger) {
	h := o.held(c, dryRun)
	args := []any{"how", h.how}
	if h.why != "" {
		args = append(args, "because", h.why)
	}
	if h.how == byChannels {
		args = append(args, "several_gpus", string(cmp.Or(o.SeveralGPUs, config.SeveralNever)))
	}
	log.Log(ctx, h.level, "how containers are held", args...)
}
