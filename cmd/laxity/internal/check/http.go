package check

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

const (
	patience  = 5 * time.Second
	maxAnswer = 64 << 20 // bytes
)

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
	if resp.StatusCode != http.StatusOK {
		answer, _ := io.ReadAll(io.LimitReader(resp.Body, 200))
		return fmt.Errorf("%s answers %s: %s", req.URL, resp.Status, bytes.TrimSpace(answer))
	}
	if v == nil {
		return nil
	}
	return json.NewDecoder(io.LimitReader(resp.Body, maxAnswer)).Decode(v)
}

// away tells of a program that does not answer: a failure if a person named it.
func (f *findings) away(at Address, err error, means, fix string) {
	if at.Given {
		f.add(Fail, "running", err.Error(), means, fix)
		return
	}
	f.add(Skip, "running", "nothing answers at "+at.URL, "", fix)
}
