package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"github.com/alecthomas/kingpin/v2"

	"github.com/laxity/laxity/cmd/internal/usage"
	"github.com/laxity/laxity/internal/access"
)

type tokenCommand struct {
	name, file, mode string
	replace          bool
}

func newTokenCommand(app *kingpin.Application) *tokenCommand {
	k := &tokenCommand{}
	cmd := app.Command("token", "Write a new bearer token to a file, for --web.bearer-token-file and Alertmanager's credentials_file. A token that is there stays. Programs that are to talk to each other need the same one: make it once, and copy it.")
	cmd.Arg("file", "The file; both programs read it anew for each request.").Required().StringVar(&k.file)
	cmd.Flag("mode", "Rights of the file, as chmod takes them.").Default("0600").StringVar(&k.mode)
	cmd.Flag("replace", "Write a new one though there is one.").BoolVar(&k.replace)
	k.name = cmd.FullCommand()
	return k
}

func (k *tokenCommand) run() error {
	mode, err := strconv.ParseUint(k.mode, 8, 9)
	if err != nil {
		return usage.Wrong(fmt.Errorf("--mode=%s: write it as chmod takes it, such as 0640", k.mode))
	}
	if i, err := os.Stat(k.file); err == nil && i.Size() > 0 && !k.replace {
		fmt.Fprintf(os.Stderr, "%s has a token, which stays; --replace writes a new one\n", k.file)
		return nil
	} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(k.file), 0o755); err != nil {
		return err
	}
	if err := access.WriteToken(k.file, fs.FileMode(mode)); err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "%s has a new token; programs read it anew for each request\n", k.file)
	return nil
}
