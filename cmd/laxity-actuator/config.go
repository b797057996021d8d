package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/laxity/laxity/actuator/allocator"
	"github.com/laxity/laxity/actuator/config"
)

// fileConfig is what --config.file may say; nil where it says nothing.
type fileConfig struct {
	Policy      *string             `yaml:"policy"`
	Share       *string             `yaml:"share"`
	Late        *time.Duration      `yaml:"late"`
	BatchFloor  *float64            `yaml:"batch_floor"`
	Arbitrate   *config.Arbitration `yaml:"arbitrate"`
	MemoryShare *allocator.Share    `yaml:"memory_share"`
	MemoryWait  *time.Duration      `yaml:"memory_wait"`
	MaxHold     *time.Duration      `yaml:"max_hold"`
	Lease       *time.Duration      `yaml:"lease"`
	Settle      *time.Duration      `yaml:"settle"`
	Breaker     struct {
		Actions *int     `yaml:"actions"`
		Share   *float64 `yaml:"share"`
	} `yaml:"breaker"`
}

// loadConfig reads the file over what the flags say. Without a file it is what
// the flags say.
func loadConfig(path string, base config.Config) (config.Config, error) {
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
		return base, fmt.Errorf("--config.file %s (it may set policy, share, late, batch_floor, memory_share, memory_wait, arbitrate, max_hold, lease, settle, breaker): %w", path, err)
	}
	c := base
	override(&c.Policy, f.Policy)
	override(&c.Arbitrate, f.Arbitrate)
	override(&c.Late, f.Late)
	override(&c.BatchFloor, f.BatchFloor)
	override(&c.MaxHold, f.MaxHold)
	override(&c.MemoryShare, f.MemoryShare)
	override(&c.MemoryWait, f.MemoryWait)
	override(&c.Lease, f.Lease)
	override(&c.Settle, f.Settle)
	override(&c.Share, f.Share)
	override(&c.BreakerActions, f.Breaker.Actions)
	override(&c.BreakerShare, f.Breaker.Share)
	if err := c.Validate(); err != nil {
		return base, fmt.Errorf("--config.file %s: %w", path, err)
	}
	return c, nil
}

func override[T any](to, v *T) {
	if v != nil {
		*to = *v
	}
}
