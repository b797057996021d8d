package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/prometheus/common/version"
)

// invocation is how the program was started.
type invocation struct {
	args []string
	// plugin: by the Docker CLI. options are docker's global ones (--context, --host …).
	plugin  bool
	options []string
}

// runPlugin is main for the Docker CLI, which starts the program as `docker-laxity OPTIONS laxity
// ARGS`, and for the Tab key as `docker-laxity __complete laxity WORDS`.
func runPlugin(args []string, stdout, stderr io.Writer) int {
	switch {
	case len(args) == 1 && args[0] == "docker-cli-plugin-metadata":
		fmt.Fprintln(stdout, pluginMetadata())
		return exitOK
	case len(args) > 1 && (args[0] == "__complete" || args[0] == "__completeNoDesc"):
		return completePlugin(args[2:], stdout, stderr)
	}
	options, rest := dockerOptions(args)
	if len(rest) == 0 || rest[0] != "laxity" { // started by itself, as its guardian
		return runCommand(invocation{args: args}, stdout, stderr)
	}
	return runCommand(invocation{args: rest[1:], plugin: true, options: options}, stdout, stderr)
}

// completePlugin completes the words after `docker laxity`, in cobra's protocol: a candidate on each
// line, then a directive. 0: complete files where there is no candidate, as our own scripts do.
func completePlugin(words []string, stdout, stderr io.Writer) int {
	runCommand(invocation{args: append([]string{"--completion-bash"}, words...)}, stdout, stderr)
	fmt.Fprint(stdout, "\n:0\n") // kingpin ends its list without a newline
	return exitOK
}

// valued are docker's global options that take a value, by each of their names. A test compares
// them with the installed docker.
var valued = map[string]string{
	"config": "config", "c": "context", "context": "context", "H": "host", "host": "host", "l": "log-level", "log-level": "log-level",
	"tlscacert": "tlscacert", "tlscert": "tlscert", "tlskey": "tlskey",
}

// dockerOptions splits docker's arguments before the command. An option with a value becomes
// --name=value.
func dockerOptions(args []string) (options, rest []string) {
	for len(args) > 0 && strings.HasPrefix(args[0], "-") {
		word := args[0]
		args = args[1:]
		name, value, given := optionOf(word)
		if name == "" {
			options = append(options, word)
			continue
		}
		if !given && len(args) > 0 {
			value, args = args[0], args[1:]
		}
		options = append(options, "--"+name+"="+value)
	}
	return options, args
}

// optionOf returns the name of an option that takes a value, and the value if it is in the same
// word; name is empty for other options.
func optionOf(word string) (name, value string, given bool) {
	if long, ok := strings.CutPrefix(word, "--"); ok {
		name, value, given = strings.Cut(long, "=")
		return valued[name], value, given
	}
	for i, letter := range word[1:] { // -DH tcp://gpu-2 is -D and -H
		if name := valued[string(letter)]; name != "" {
			value = strings.TrimPrefix(word[2+i:], "=")
			return name, value, value != ""
		}
	}
	return "", "", false
}

// noEngineOption is the error of commands to which docker's options do not reach.
func noEngineOption(options []string) error {
	for _, o := range options {
		if strings.HasPrefix(o, "--host=") || strings.HasPrefix(o, "--context=") {
			return fmt.Errorf("docker's option %s reaches run, create and sim run alone: leave it out, or name an engine with --docker.host (up, off, check, demo) and another node with --exporter.url and --actuator.url", o)
		}
	}
	return nil
}

// pluginMetadata is what the Docker CLI requests from every plugin.
func pluginMetadata() string {
	b, _ := json.Marshal(map[string]string{
		"SchemaVersion":    "0.1.0",
		"Vendor":           "The Laxity authors",
		"Version":          version.Version,
		"ShortDescription": "Deadlines for containers that share GPUs",
		"URL":              "https://github.com/laxity/laxity",
	})
	return string(b)
}
