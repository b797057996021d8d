// Package access says who may act by HTTP, in one place for every program: bearer
// tokens in a file, what a web configuration asks of clients, and the gate that
// handlers stand behind.
//
// It is a leaf: it imports the standard library, internal/replace, go.yaml.in/yaml and
// golang.org/x/time.
package access

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"strings"

	"github.com/laxity/laxity/internal/replace"
)

// Tokens are the bearer tokens in a file, one a line; empty lines and lines that
// begin with # do not count. The file is read for every request that brings a
// token, so that a token can be changed without a restart.
type Tokens struct{ path string }

// minimum length of a token: a shorter one can be guessed.
const minimum = 16

// OpenTokens checks the file.
func OpenTokens(path string) (*Tokens, error) {
	_, err := ReadTokens(path)
	return TokensIn(path), err
}

// TokensIn returns the tokens of a file that will exist before the first request.
func TokensIn(path string) *Tokens { return &Tokens{path: path} }

// ReadTokens returns the tokens in a file, at least one.
func ReadTokens(path string) ([]string, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("bearer tokens: %w", err)
	}
	var all []string
	for line := range strings.Lines(string(raw)) {
		line = strings.TrimSpace(line)
		switch {
		case line == "" || line[0] == '#':
		case len(line) < minimum:
			return nil, fmt.Errorf("bearer tokens: a token in %s is shorter than %d characters; make one with `laxity-actuator token`", path, minimum)
		default:
			all = append(all, line)
		}
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("bearer tokens: %s holds no token; write one on a line", path)
	}
	return all, nil
}

// WriteToken puts a new token into a file of this mode, after the comments. The
// file takes the place of an old one in one step: nobody reads half a token.
func WriteToken(path string, mode fs.FileMode, comments ...string) error {
	secret := make([]byte, 32)
	if _, err := rand.Read(secret); err != nil {
		return err
	}
	var text strings.Builder
	for _, line := range comments {
		fmt.Fprintln(&text, "# "+line)
	}
	fmt.Fprintln(&text, hex.EncodeToString(secret))
	return replace.File(path, []byte(text.String()), mode)
}

// ErrDenied means that the request has no valid token. ErrWrongToken is an ErrDenied of one
// that brings a token.
var ErrDenied = errors.New("a token is needed: send `Authorization: Bearer TOKEN` (in Alertmanager: http_config.authorization), or the token as password")

// ErrWrongToken means that the request brings a token, and none of those that count.
var ErrWrongToken error = wrongToken{}

type wrongToken struct{}

func (wrongToken) Error() string {
	return "wrong token: it is none of those in the file that --web.bearer-token-file names here; send one of these (laxity-actuator token FILE makes one where there is none)"
}

func (wrongToken) Is(target error) bool { return target == ErrDenied }

// Check reports whether the request brings one of the tokens: as a bearer token, or as the
// password of any user, for programs that know only passwords. It compares with every token,
// in constant time. If the file cannot be read, it admits no client.
func (t *Tokens) Check(r *http.Request) error {
	_, got, ok := r.BasicAuth()
	if !ok {
		var kind string
		kind, got, ok = strings.Cut(r.Header.Get("Authorization"), " ")
		ok = ok && strings.EqualFold(kind, "Bearer")
	}
	if !ok {
		return ErrDenied
	}
	all, err := ReadTokens(t.path)
	if err != nil {
		return err
	}
	have, match := sha256.Sum256([]byte(strings.TrimSpace(got))), 0
	for _, token := range all {
		want := sha256.Sum256([]byte(token))
		match |= subtle.ConstantTimeCompare(have[:], want[:])
	}
	if match != 1 {
		return ErrWrongToken
	}
	return nil
}
