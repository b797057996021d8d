package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/laxity/laxity/actuator/source"
	"github.com/laxity/laxity/cmd/internal/completion"
	"github.com/laxity/laxity/cmd/laxity/internal/simrun"
)

const completionHelp = `Print a script that lets a shell complete commands, flags and containers' names.

  source <(laxity completion bash)                                       this shell; or write it to
  laxity completion bash > /etc/bash_completion.d/laxity                 every shell
  laxity completion zsh > "${fpath[1]}/_laxity"
  laxity completion fish > ~/.config/fish/completions/laxity.fish

After laxity run, create and sim run docker completes its own flags and images.`

func (c *cli) addCompletion() {
	var shell string
	cmd := c.command("completion", completionHelp, func(context.Context, *slog.Logger) error {
		_, err := io.WriteString(c.out, completion.Script(shell, "laxity"))
		return err
	})
	cmd.Arg("shell", "bash, zsh or fish.").Required().HintOptions(completion.Shells...).EnumVar(&shell, completion.Shells...)
}

// completeSimRun completes the words after laxity sim run.
func completeSimRun(out io.Writer, words []string) {
	current := ""
	if len(words) > 0 {
		current = words[len(words)-1]
	}
	for _, name := range simrun.Programs() {
		if strings.HasPrefix(name, current) {
			fmt.Fprintln(out, name)
		}
	}
	completeRun(out, "run", simRunFlags, words)
}

// completionPatience bounds what a person waits for after the Tab key.
var completionPatience = 500 * time.Millisecond

// plainName is a name that no shell takes for anything else: it lands on a person's command line, and
// whoever listens at the exporter's address may have made it up.
var plainName = regexp.MustCompile(`^[A-Za-z0-9_./][A-Za-z0-9_./-]*$`)

// containers returns the names of the containers that the exporter knows, or none where it
// does not answer. base is the address from the command line; empty means the default.
func containers(base *string) func() []string {
	return func() []string {
		address := *base
		if address == "" {
			address = exporterFromEnv()
		}
		client, err := clientFromEnv("")
		if err != nil {
			return nil
		}
		source, err := source.NewHTTP(address, client)
		if err != nil {
			return nil
		}
		ctx, cancel := context.WithTimeout(context.Background(), completionPatience)
		defer cancel()
		s, err := source.Snapshot(ctx)
		if err != nil {
			return nil
		}
		var names []string
		for _, found := range s.Containers {
			if plainName.MatchString(found.Name) {
				names = append(names, found.Name)
			}
		}
		return slices.Sorted(slices.Values(names))
	}
}

// runFlags are those of laxity run and create that are not docker's.
var runFlags = []string{"deadline", "gpu-memory", "estimate", "node", "gpu-request", "actuator.url", "token.file", "require"}

// simRunFlags are those of laxity sim run.
var simRunFlags = []string{"deadline", "gpu-memory", "socket"}

// withoutOwn removes our own flags and their values, which docker does not know. The last
// word is the one being typed.
func withoutOwn(words, own []string) []string {
	if len(words) == 0 {
		return []string{""}
	}
	var rest []string
	for i := 0; i < len(words)-1; i++ {
		name, _, whole := strings.Cut(strings.TrimPrefix(words[i], "--"), "=")
		if !strings.HasPrefix(words[i], "--") || !slices.Contains(own, name) {
			rest = append(rest, words[i])
			continue
		}
		if !whole && name != "require" { // it takes its value after =
			i++
		}
	}
	return append(rest, words[len(words)-1])
}

// completeRun completes the words after laxity run, create and sim run: our own flags, and
// those of docker's command, which docker completes.
func completeRun(out io.Writer, command string, own, words []string) {
	current := ""
	if len(words) > 0 {
		current = words[len(words)-1]
	}
	for _, f := range own {
		if strings.HasPrefix("--"+f, current) && strings.HasPrefix(current, "-") {
			fmt.Fprintln(out, "--"+f)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 4*completionPatience)
	defer cancel()
	words = withoutOwn(words, own)
	completions, err := exec.CommandContext(ctx, "docker", append([]string{"__completeNoDesc", command}, words...)...).Output()
	if err != nil {
		return
	}
	for line := range strings.Lines(string(completions)) {
		if !strings.HasPrefix(line, ":") { // the last line is a directive to the shell
			fmt.Fprint(out, line)
		}
	}
}
