package mechanism

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/laxity/laxity/actuator/arbiter"
	"github.com/laxity/laxity/actuator/config"
	"github.com/laxity/laxity/actuator/enforce/channels/channelstest"
)

// One line at the start says how containers are held, and why so.
func TestTheStartSaysHowContainersAreHeld(t *testing.T) {
	m := channelstest.NewMachine()
	for name, c := range map[string]struct {
		o    Options
		c    config.Config
		dry  bool
		want []string
	}{
		"proven":        {Options{Channels: m, ChannelsProven: "GPU 0: the self-test"}, config.Config{}, false, []string{"INFO", byChannels, "GPU 0: the self-test", "several_gpus=never"}},
		"as one":        {Options{Channels: m, ChannelsProven: "GPU 0: the self-test", SeveralGPUs: config.SeveralAsOne}, config.Config{}, false, []string{"several_gpus=as-one"}},
		"given":         {Options{NewChannels: func() (arbiter.Channels, error) { return nil, nil }}, config.Config{}, false, []string{"INFO", byChannels}}, //nolint:nilnil // it is not called
		"not proven":    {Options{Channels: m, NoChannels: "2 GiB are needed"}, config.Config{}, false, []string{"WARN", byPauses, "2 GiB are needed"}},
		"no GPU":        {Options{}, config.Config{}, false, []string{"WARN", byPauses, "no way"}},
		"as wanted":     {Options{Channels: m, Hold: config.HoldPause}, config.Config{}, false, []string{"INFO", byPauses, "--hold=pause"}},
		"by the policy": {Options{Channels: m}, config.Config{Policy: "p3"}, false, []string{"INFO", byPauses, "--policy=p3"}},
		"a dry run":     {Options{Channels: m}, config.Config{}, true, []string{"INFO", "not at all", "--dry-run"}},
	} {
		var log bytes.Buffer
		c.o.LogHeld(t.Context(), c.c.WithDefaults(), c.dry, slog.New(slog.NewTextHandler(&log, nil)))
		if strings.Count(log.String(), "\n") != 1 {
			t.Errorf("%s: %q", name, log.String())
		}
		for _, w := range c.want {
			if !strings.Contains(log.String(), w) {
				t.Errorf("%s: %q, want %q in it", name, log.String(), w)
			}
		}
	}
}
