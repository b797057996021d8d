// Package auth says who may change something by HTTP: it reads bearer tokens from
// a file, and finds out whether a web configuration makes every client
// authenticate.
//
// It is an adapter: it imports the standard library and a YAML reader.
package auth

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Tokens are the bearer tokens in a file, one a line; empty lines and lines that
// begin with # do not count. The file is read for every request that brings a
// token, so that a token can be changed without a restart.
type Tokens struct{ path string }

// minimum length of a token: what is shorter can be guessed.
const minimum = 16

// OpenTokens checks the file.
func OpenTokens(path string) (*Tokens, error) {
	t := &Tokens{path: path}
	_, err := t.read()
	return t, err
}

func (t *Tokens) read() ([]string, error) {
	raw, err := os.ReadFile(t.path)
	if err != nil {
		return nil, fmt.Errorf("bearer tokens: %w", err)
	}
	var all []string
	for line := range strings.Lines(string(raw)) {
		line = strings.TrimSpace(line)
		switch {
		case line == "" || line[0] == '#':
		case len(line) < minimum:
			return nil, fmt.Errorf("bearer tokens: a token in %s is shorter than %d characters; make one with `openssl rand -hex 32`", t.path, minimum)
		default:
			all = append(all, line)
		}
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("bearer tokens: %s holds no token; write one on a line", t.path)
	}
	return all, nil
}

// ErrDenied means that the request has no valid token.
var ErrDenied = errors.New("a bearer token is needed: send `Authorization: Bearer TOKEN` (in Alertmanager: http_config.authorization)")

// Check reports whether the request brings one of the tokens. Every token is
// compared, in constant time. A file that cannot be read lets nobody in.
func (t *Tokens) Check(r *http.Request) error {
	kind, got, ok := strings.Cut(r.Header.Get("Authorization"), " ")
	if !ok || !strings.EqualFold(kind, "Bearer") {
		return ErrDenied
	}
	known, err := t.knows(sha256.Sum256([]byte(strings.TrimSpace(got))))
	if err != nil {
		return err
	}
	if !known {
		return ErrDenied
	}
	return nil
}

// knows reports whether one of the tokens has this hash.
func (t *Tokens) knows(have [32]byte) (bool, error) {
	all, err := t.read()
	if err != nil {
		return false, err
	}
	match := 0
	for _, token := range all {
		want := sha256.Sum256([]byte(token))
		match |= subtle.ConstantTimeCompare(have[:], want[:])
	}
	return match == 1, nil
}

// WebConfig is what a web configuration file asks of clients.
type WebConfig struct {
	// Passwords: every client needs a password. Certificates: every client needs
	// a certificate that is verified.
	Passwords, Certificates bool
}

// Everybody reports whether every client has to authenticate.
func (c WebConfig) Everybody() bool { return c.Passwords || c.Certificates }

// ReadWebConfig reads an exporter-toolkit web configuration; no path, no demands.
func ReadWebConfig(path string) (WebConfig, error) {
	if path == "" {
		return WebConfig{}, nil
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		return WebConfig{}, fmt.Errorf("--web.config.file: %w", err)
	}
	var c struct {
		TLS struct {
			ClientAuth string `yaml:"client_auth_type"`
		} `yaml:"tls_server_config"`
		Users map[string]string `yaml:"basic_auth_users"`
	}
	if err := yaml.Unmarshal(raw, &c); err != nil {
		return WebConfig{}, fmt.Errorf("--web.config.file %s: %w", path, err)
	}
	return WebConfig{Passwords: len(c.Users) > 0, Certificates: c.TLS.ClientAuth == "RequireAndVerifyClientCert"}, nil
}
