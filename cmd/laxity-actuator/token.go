package main

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"github.com/alecthomas/kingpin/v2"
)

type tokenCommand struct {
	name, file, mode string
	replace          bool
}

func newTokenCommand(app *kingpin.Application) *tokenCommand {
	k := &tokenCommand{}
	cmd := app.Command("token", "Write a new bearer token to a file, for --web.bearer-token-file and Alertmanager's credentials_file. A token that is there stays.")
	cmd.Arg("file", "The file; both programs read it anew for each request.").Required().StringVar(&k.file)
	cmd.Flag("mode", "Rights of the file, as chmod takes them.").Default("0600").StringVar(&k.mode)
	cmd.Flag("replace", "Write a new one though there is one.").BoolVar(&k.replace)
	k.name = cmd.FullCommand()
	return k
}

func (k *tokenCommand) run() error {
	mode, err := strconv.ParseUint(k.mode, 8, 9)
	if err != nil {
		return fmt.Errorf("--mode=%s: write it as chmod takes it, such as 0640", k.mode)
	}
	if i, err := os.Stat(k.file); err == nil && i.Size() > 0 && !k.replace {
		return nil
	} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	secret := make([]byte, 32)
	if _, err := rand.Read(secret); err != nil {
		return err
	}
	// A new file takes the place of the old one: nobody reads half a token.
	f, err := os.CreateTemp(filepath.Dir(k.file), ".token-")
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(f, hex.EncodeToString(secret))
	err = errors.Join(err, f.Chmod(fs.FileMode(mode)), f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), k.file)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}
