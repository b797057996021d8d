package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/laxity/laxity/cmd/internal/usage"
	"github.com/laxity/laxity/internal/plain"
	"github.com/laxity/laxity/internal/unreachable"
)

const pauseHelp = `Pause a container until it is released, or for as long as --max-hold of the actuator says.

  sudo laxity pause trainer
  sudo laxity release trainer

The container engine pauses its host side. Kernels that it has launched stand still, too, where channels
can be controlled (laxity check); elsewhere they run to their end. Its GPU memory stays its own. Only
containers with a laxity.* label can be paused. What you paused with docker pause is not Laxity's to release.`

const releaseHelp = `Release a container that Laxity holds.

  sudo laxity release trainer

It is not held again for its present tasks, whatever the reason was. While these last it
is left alone like a container without a label.`

func (c *cli) addActions() {
	add := func(name, help string) {
		var address, container string
		cmd := c.command(name, help, func(ctx context.Context, _ *slog.Logger) error {
			said, err := c.act(ctx, address, name, container)
			if err == nil {
				fmt.Fprintf(c.out, "%s: %s\n", plain.Line(container), plain.Line(said))
			}
			return err
		})
		usage.Address(cmd.Flag("actuator.url", "Address of the actuator (or of laxity up's).").Envar(actuatorEnv), defaultActuator, &address)
		cmd.Arg("container", "Name or id.").Required().HintAction(containers(new(string))).StringVar(&container)
		c.quiet[name] = true
	}
	add("pause", pauseHelp)
	add("release", releaseHelp)
}

// act asks the actuator for an action of its page, and returns its answer.
func (c *cli) act(ctx context.Context, base, action, container string) (string, error) {
	client, err := c.client()
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	body := url.Values{"container": {container}}.Encode()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, strings.TrimRight(base, "/")+"/actions/"+action, strings.NewReader(body))
	if err != nil {
		return "", err
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	resp, err := client.Do(req)
	if err != nil {
		return "", unreachable.At("actuator", req.URL, err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 4<<10))
	if err != nil {
		return "", err
	}
	said := strings.TrimSpace(string(text))
	if resp.StatusCode == http.StatusOK {
		return said, nil
	}
	said = strings.TrimPrefix(said, "Failed: ")
	return "", denied(resp.StatusCode, errors.New(cmp.Or(said, "the actuator answers "+resp.Status)))
}
