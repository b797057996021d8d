package check

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"
)

const (
	patience  = 5 * time.Second
	maxAnswer = 64 << 20 // bytes
)

// errAsks: it wants a password or token, and check sent none that it takes.
var errAsks = errors.New("it wants a password or token")

// fetch reads JSON from a path there into v; with a body it posts that.
func fetch(ctx context.Context, at Address, path string, body, v any) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	method, payload := http.MethodGet, io.Reader(http.NoBody)
	if body != nil {
		raw, err := json.Marshal(body)
		if err != nil {
			return err
		}
		method, payload = http.MethodPost, bytes.NewReader(raw)
	}
	req, err := http.NewRequestWithContext(ctx, method, strings.TrimRight(at.URL, "/")+path, payload)
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := at.client().Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusUnauthorized {
		return fmt.Errorf("%s: %w", at.URL, errAsks)
	}
	if resp.StatusCode != http.StatusOK {
		answer, _ := io.ReadAll(io.LimitReader(resp.Body, 200))
		return fmt.Errorf("%s answers %s: %s", req.URL, resp.Status, bytes.TrimSpace(answer))
	}
	if v == nil {
		return nil
	}
	return json.NewDecoder(io.LimitReader(resp.Body, maxAnswer)).Decode(v)
}

// permission is what a program answers to a request that changes nothing and that only those
// who may act are let through to.
type permission int

const (
	unasked permission = iota // it could not be asked
	mayAct
	noToken    // it wants a token or password, and none was sent
	wrongToken // it wants one, and another one was sent
	notHere    // it takes changes from its own machine alone
)

// permitted asks.
func permitted(ctx context.Context, at Address, method, path string) permission {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, strings.TrimRight(at.URL, "/")+path, http.NoBody)
	if err != nil {
		return unasked
	}
	resp, err := at.client().Do(req)
	if err != nil {
		return unasked
	}
	defer resp.Body.Close()
	switch {
	case resp.StatusCode == http.StatusNotFound || resp.StatusCode == http.StatusMethodNotAllowed:
		return unasked // a program of another version: nobody asks who calls what is not there
	case resp.StatusCode == http.StatusForbidden:
		return notHere
	case resp.StatusCode != http.StatusUnauthorized:
		return mayAct
	case slices.ContainsFunc(resp.Header.Values("WWW-Authenticate"), func(c string) bool { return strings.Contains(c, "invalid_token") }):
		return wrongToken
	default:
		return noToken
	}
}

// permission tells of who may not act. program is whose token it is about.
func (f *findings) permission(p permission, program, refused string) {
	fix := "--token.file with the file that " + program + " has as --web.bearer-token-file, or the file token in the --state-dir of laxity up: unless it is named, a default one goes to its owner's programs at 127.0.0.1 alone. Where clients authenticate otherwise: --http.config.file"
	switch p {
	case wrongToken:
		f.add(Fail, "token", "the token sent is none of those that "+program+" takes", refused, fix+". One that two programs are to share is made once (laxity-actuator token FILE) and copied")
	case noToken:
		f.add(Warn, "token", "it wants a token or password, and check sent none", refused, fix)
	case notHere:
		f.add(Warn, "token", "it takes changes from its own machine alone, because nobody has to authenticate", refused, "make a token there (laxity-actuator token /etc/laxity/token) and start it with --web.bearer-token-file=/etc/laxity/token")
	case mayAct:
		f.ok("token", "requests from here may change something")
	case unasked:
	}
}

// away tells of a program that does not answer: a failure if a person named it.
func (f *findings) away(at Address, err error, means, fix string) {
	if at.Given {
		f.add(Fail, "running", err.Error(), means, fix)
		return
	}
	if errors.Is(err, errAsks) {
		f.add(Skip, "running", err.Error(), "", "--http.config.file with one that it takes; for Prometheus and Alertmanager: --prometheus.config.file")
		return
	}
	f.add(Skip, "running", "nothing answers at "+at.URL, "", fix)
}
