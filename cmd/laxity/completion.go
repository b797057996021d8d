package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/laxity/laxity/actuator/source"
)

const completionHelp = `Print a script that lets a shell complete commands, flags and containers' names.

  source <(laxity completion bash)                                       this shell; or write it to
  laxity completion bash > /etc/bash_completion.d/laxity                 every shell
  laxity completion zsh > "${fpath[1]}/_laxity"
  laxity completion fish > ~/.config/fish/completions/laxity.fish

After laxity run and laxity create docker completes its own flags and images.`

// completionScripts call the program itself with the words so far.
var completionScripts = map[string]string{
	"bash": `_laxity() {
    local cur="${COMP_WORDS[COMP_CWORD]}"
    local IFS=$'\n'
    COMPREPLY=($(compgen -W "$("${COMP_WORDS[0]}" --completion-bash "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)" -- "$cur"))
}
complete -o default -F _laxity laxity
`,
	"zsh": `#compdef laxity
_laxity() {
    local -a matches
    matches=(${(f)"$("${words[1]}" --completion-bash "${(@)words[2,$CURRENT]}" 2>/dev/null)"})
    compadd -a matches
    if [[ $compstate[nmatches] -eq 0 && $words[$CURRENT] != -* ]]; then
        _files
    fi
}
if [[ "$funcstack[1]" == "_laxity" ]]; then
    _laxity "$@"
else
    compdef _laxity laxity
fi
`,
	"fish": `function __laxity_complete
    set -l words (commandline -opc) (commandline -ct)
    $words[1] --completion-bash $words[2..-1] 2>/dev/null
end
complete -c laxity -a '(__laxity_complete)'
`,
}

var shells = []string{"bash", "zsh", "fish"}

func (c *cli) addCompletion() {
	var shell string
	cmd := c.command("completion", completionHelp, func(context.Context, *slog.Logger) error {
		_, err := io.WriteString(c.out, completionScripts[shell])
		return err
	})
	cmd.Arg("shell", "bash, zsh or fish.").Required().HintOptions(shells...).EnumVar(&shell, shells...)
}

// completionPatience bounds what a person waits for after the Tab key.
const completionPatience = 500 * time.Millisecond

// containers returns the names of the containers that the exporter knows, or none where it
// does not answer. base is the address from the command line; empty means the default.
func containers(base *string) func() []string {
	return func() []string {
		address := *base
		if address == "" {
			address = exporterFromEnv()
		}
		client, err := clientFromEnv()
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
			names = append(names, found.Name)
		}
		return slices.Sorted(slices.Values(names))
	}
}

// runFlags are those of laxity run and create that are not docker's.
var runFlags = []string{"deadline", "gpu-memory", "estimate", "node", "gpu-request", "actuator.url"}

// withoutOwn removes our own flags and their values, which docker does not know. The last
// word is the one being typed.
func withoutOwn(words []string) []string {
	if len(words) == 0 {
		return []string{""}
	}
	var rest []string
	for i := 0; i < len(words)-1; i++ {
		name, _, whole := strings.Cut(strings.TrimPrefix(words[i], "--"), "=")
		if !strings.HasPrefix(words[i], "--") || !slices.Contains(runFlags, name) {
			rest = append(rest, words[i])
			continue
		}
		if !whole {
			i++
		}
	}
	return append(rest, words[len(words)-1])
}

// completeRun completes the words after laxity run and laxity create: our own flags, and
// docker's, which docker completes.
func completeRun(out io.Writer, command string, words []string) {
	current := ""
	if len(words) > 0 {
		current = words[len(words)-1]
	}
	for _, f := range runFlags {
		if strings.HasPrefix("--"+f, current) && strings.HasPrefix(current, "-") {
			fmt.Fprintln(out, "--"+f)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 4*completionPatience)
	defer cancel()
	words = withoutOwn(words)
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
