package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/laxity/laxity/actuator"
)

// fileConfig is what --config.file may say.
type fileConfig struct {
	Policy    string        `yaml:"policy"`
	Arbitrate string        `yaml:"arbitrate"`
	MaxHold   time.Duration `yaml:"max_hold"`
	Lease     time.Duration `yaml:"lease"`
	Settle    time.Duration `yaml:"settle"`
}

// loadConfig reads the file over what the flags say. Without a file it is what
// the flags say.
func loadConfig(path string, base actuator.Config) (actuator.Config, error) {
	if path == "" {
		return base, nil
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		return base, fmt.Errorf("--config.file: %w", err)
	}
	var f fileConfig
	dec := yaml.NewDecoder(bytes.NewReader(raw))
	dec.KnownFields(true)
	if err := dec.Decode(&f); err != nil && !errors.Is(err, io.EOF) {
		return base, fmt.Errorf("--config.file %s (it may set policy, arbitrate, max_hold, lease, settle): %w", path, err)
	}
	c := base
	override(&c.Policy, f.Policy)
	override(&c.Arbitrate, actuator.Arbitration(f.Arbitrate))
	override(&c.MaxHold, f.MaxHold)
	override(&c.Lease, f.Lease)
	override(&c.Settle, f.Settle)
	if err := c.Validate(); err != nil {
		return base, fmt.Errorf("--config.file %s: %w", path, err)
	}
	return c, nil
}

func override[T comparable](to *T, v T) {
	var zero T
	if v != zero {
		*to = v
	}
}

// authenticates reports whether a web configuration makes every client
// authenticate: by password or by certificate.
func authenticates(path string) (bool, error) {
	if path == "" {
		return false, nil
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		return false, fmt.Errorf("--web.config.file: %w", err)
	}
	var c struct {
		TLS struct {
			ClientAuth string `yaml:"client_auth_type"`
		} `yaml:"tls_server_config"`
		Users map[string]string `yaml:"basic_auth_users"`
	}
	if err := yaml.Unmarshal(raw, &c); err != nil {
		return false, fmt.Errorf("--web.config.file %s: %w", path, err)
	}
	return len(c.Users) > 0 || c.TLS.ClientAuth == "RequireAndVerifyClientCert", nil
}
