package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"github.com/alecthomas/kingpin/v2"
	"go.yaml.in/yaml/v3"
	"golang.org/x/crypto/bcrypt"

	"github.com/laxity/laxity/cmd/internal/usage"
	"github.com/laxity/laxity/internal/access"
	"github.com/laxity/laxity/internal/replace"
)

type tokenCommand struct {
	name, file, mode, webConfig string
	replace                     bool
}

func newTokenCommand(app *kingpin.Application) *tokenCommand {
	k := &tokenCommand{}
	cmd := app.Command("token", "Write a new bearer token to a file, for --web.bearer-token-file and Alertmanager's credentials_file, or with --web-config for Prometheus's password_file. A token that is there stays. Programs that are to talk to each other need the same one: make it once, and copy it.")
	cmd.Arg("file", "The file; programs read it anew for each request.").Required().StringVar(&k.file)
	cmd.Flag("mode", "Rights of the files, as chmod takes them.").Default("0600").StringVar(&k.mode)
	cmd.Flag("replace", "Write a new one though there is one.").BoolVar(&k.replace)
	cmd.Flag("web-config", "Also write this file, for Alertmanager's --web.config.file: it admits the user "+webUser+" with the token as password, and nobody else.").PlaceHolder("FILE").StringVar(&k.webConfig)
	k.name = cmd.FullCommand()
	return k
}

func (k *tokenCommand) run() error {
	mode, err := strconv.ParseUint(k.mode, 8, 9)
	if err != nil {
		return usage.Wrong(fmt.Errorf("--mode=%s: write it as chmod takes it, such as 0640", k.mode))
	}
	if err := k.makeToken(fs.FileMode(mode)); err != nil || k.webConfig == "" {
		return err
	}
	return k.makeWebConfig(fs.FileMode(mode))
}

func (k *tokenCommand) makeToken(mode fs.FileMode) error {
	if i, err := os.Stat(k.file); err == nil && i.Size() > 0 && !k.replace {
		fmt.Fprintf(os.Stderr, "%s has a token, which stays; --replace writes a new one\n", k.file)
		return nil
	} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(k.file), 0o755); err != nil {
		return err
	}
	if err := access.WriteToken(k.file, mode); err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "%s has a new token; programs read it anew for each request\n", k.file)
	return nil
}

// webUser is the user of a web configuration that we write.
const webUser = "laxity"

// makeWebConfig writes the web configuration for the token in the file. One that is there may have
// settings of other people's: it stays if it admits the user with that token, and is an error if not.
func (k *tokenCommand) makeWebConfig(mode fs.FileMode) error {
	password, err := os.ReadFile(k.file)
	if err != nil {
		return err
	}
	password = bytes.TrimSpace(password) // as Prometheus reads a password_file
	if old, err := os.ReadFile(k.webConfig); err == nil && !k.replace {
		if !admits(old, password) {
			return fmt.Errorf("%s does not admit the user %s with the token in %s (--replace writes both anew)", k.webConfig, webUser, k.file)
		}
		return nil
	} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	hash, err := bcrypt.GenerateFromPassword(password, bcrypt.DefaultCost)
	if err != nil {
		return fmt.Errorf("%s as a password: %w", k.file, err)
	}
	text := fmt.Sprintf("# laxity-actuator token wrote this: the password is in %s.\nbasic_auth_users:\n  %s: %s\n", k.file, webUser, hash)
	if err := os.MkdirAll(filepath.Dir(k.webConfig), 0o755); err != nil {
		return err
	}
	if err := replace.File(k.webConfig, []byte(text), mode); err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "%s admits the user %s with the token as password\n", k.webConfig, webUser)
	return nil
}

// admits reports whether a web configuration lets webUser in with the password.
func admits(webConfig, password []byte) bool {
	var c struct {
		Users map[string]string `yaml:"basic_auth_users"`
	}
	return yaml.Unmarshal(webConfig, &c) == nil && bcrypt.CompareHashAndPassword([]byte(c.Users[webUser]), password) == nil
}
