package access

import (
	"errors"
	"fmt"
)

// Files are what a program's flags name.
type Files struct {
	WebConfig string   // --web.config.file
	Tokens    string   // --web.bearer-token-file
	Hosts     []string // --web.allowed-host
}

// Open reads the files. A file that is not named makes no demand.
func (f Files) Open() (Options, error) {
	web, err := OpenWebConfig(f.WebConfig)
	if err != nil {
		return Options{}, err
	}
	o := Options{Web: web, Hosts: f.Hosts}
	if f.Tokens == "" {
		return o, nil
	}
	if web.Demands().Passwords {
		return o, errors.New("--web.bearer-token-file and basic_auth_users exclude each other: a request has one Authorization; choose one (client certificates go with both)")
	}
	if o.Tokens, err = OpenTokens(f.Tokens); err != nil {
		return o, fmt.Errorf("--web.bearer-token-file: %w", err)
	}
	return o, nil
}
