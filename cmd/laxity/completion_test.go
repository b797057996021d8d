package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/laxity/laxity/cmd/internal/completion"
	"github.com/laxity/laxity/exporter/task"
	"github.com/laxity/laxity/internal/needtest"
)

// completed asks for the words that may come next.
func completed(t *testing.T, words ...string) []string {
	t.Helper()
	_, lines, _ := asked(t, append([]string{"laxity", "--completion-bash"}, words...)...)
	return lines
}

// asked runs the program and returns the lines that it printed. Kingpin writes completions to the
// process's own output.
func asked(t *testing.T, args ...string) (code int, lines []string, stderr string) {
	t.Helper()
	file, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	before := os.Stdout
	os.Stdout = file
	var errs strings.Builder
	code = realMain(args, file, &errs)
	os.Stdout = before
	out, err := os.ReadFile(file.Name())
	if err != nil {
		t.Fatal(err)
	}
	return code, strings.Fields(string(out)), errs.String()
}

func TestCompletion(t *testing.T) {
	t.Setenv("LAXITY_EXPORTER_URL", serve(t, task.Snapshot{Containers: []task.Container{{Name: "web"}, {Name: "trainer"}, {Name: "$(touch"}, {Name: "--all"}, {Name: "a;b"}}}))
	tests := []struct {
		words []string
		want  []string // all of these are among the answers
		not   string
	}{
		{[]string{""}, []string{"up", "ps", "check", "completion", "run"}, "guardian"},
		{[]string{"why", ""}, []string{"trainer", "web"}, "$(touch"},
		{[]string{"deadline", ""}, []string{"trainer", "web"}, "--all"},
		{[]string{"share", ""}, []string{"trainer", "web"}, "a;b"},
		{[]string{"up", "--policy", ""}, []string{"edf", "llf", "fifo", "p3"}, ""},
		{[]string{"ps", "--"}, []string{"--json", "--all", "--exporter.url"}, ""},
		{[]string{"completion", ""}, []string{"bash", "zsh", "fish"}, ""},
		{[]string{"sim", ""}, []string{"run", "serve"}, ""},
		{[]string{"sim", "run", ""}, []string{"matmul", "server"}, ""},
		{[]string{"sim", "run", "--s"}, []string{"--socket"}, "--deadline"},
		{[]string{"run", "--d"}, []string{"--deadline"}, "--gpu-memory"},
	}
	for _, tt := range tests {
		got := completed(t, tt.words...)
		for _, want := range tt.want {
			if !slices.Contains(got, want) {
				t.Errorf("%q: %q is not among %q", tt.words, want, got)
			}
		}
		if tt.not != "" && slices.Contains(got, tt.not) {
			t.Errorf("%q: %q is among %q", tt.words, tt.not, got)
		}
	}
}

// Docker must not see flags that it does not know.
func TestWithoutOwn(t *testing.T) {
	for in, want := range map[string]string{
		"--deadline 9s --na":                  "--na",
		"--deadline=9s --rm --node gpu-2 img": "--rm img",
		"--require --deadline 9s --rm img":    "--rm img",
		"--name x --deadline":                 "--name x --deadline",
	} {
		if got := strings.Join(withoutOwn(strings.Fields(in), runFlags), " "); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
	if got := withoutOwn(nil, runFlags); len(got) != 1 || got[0] != "" {
		t.Errorf("nothing yet: %q", got)
	}
}

// What is completed behind run is what its help tells.
func TestRunFlagsAreThoseOfTheHelp(t *testing.T) {
	for help, flags := range map[string][]string{runHelp: runFlags, simRunHelp: simRunFlags} {
		_, own, _ := strings.Cut(help, "Flags besides docker's:")
		var reported []string
		for _, m := range regexp.MustCompile(`(?m)^  --([a-z.-]+)`).FindAllStringSubmatch(own, -1) {
			reported = append(reported, m[1])
		}
		if !slices.Equal(slices.Sorted(slices.Values(reported)), slices.Sorted(slices.Values(flags))) {
			t.Errorf("the help tells %q, completed are %q", reported, flags)
		}
	}
}

// The scripts work in the shells that are installed, and run nothing of what the program says: a
// stand-in for it answers with the words that it was given, and with a command.
func TestScripts(t *testing.T) {
	dir := t.TempDir()
	fake := "#!/bin/sh\nshift\nfor w; do echo \"got-$w\"; done\nprintf '%s' 'got-$(touch $HOME/ran)`touch $HOME/ran`'\n"
	writeFile(t, filepath.Join(dir, "laxity"), fake, 0o755)
	tests := map[string]string{
		"bash": `COMP_WORDS=(laxity why got); COMP_CWORD=2; _laxity; printf '%s\n' "${COMPREPLY[@]}"`,
		"zsh":  `compdef() { :; }; _files() { :; }; compadd() { print -l $matches; }; words=(laxity why got); CURRENT=3; _laxity`,
		"fish": `complete -C'laxity why got'`,
	}
	for _, shell := range completion.Shells {
		t.Run(shell, func(t *testing.T) {
			path, err := exec.LookPath(shell)
			if err != nil {
				needtest.Need(shell).Skipf(t, "%s is not installed", shell)
			}
			code, script, stderr := laxity("completion", shell)
			if code != exitOK {
				t.Fatal(stderr)
			}
			cmd := exec.CommandContext(t.Context(), path, "-c", script+"\n"+tests[shell])
			cmd.Env = append(cmd.Environ(), "PATH="+dir+":/usr/bin:/bin", "HOME="+dir)
			out, err := cmd.CombinedOutput()
			if err != nil || !strings.Contains(string(out), "got-why") {
				t.Errorf("%v\n%s", err, out)
			}
			if _, err := os.Stat(filepath.Join(dir, "ran")); err == nil || !strings.Contains(string(out), "touch") {
				t.Errorf("it ran what is completed, or dropped the last line\n%s", out)
			}
		})
	}
}
