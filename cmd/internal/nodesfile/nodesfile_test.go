package nodesfile_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/laxity/laxity/actuator/config"
	"github.com/laxity/laxity/actuator/nodes"
	"github.com/laxity/laxity/cmd/internal/nodesfile"
)

func TestFollow(t *testing.T) {
	path := filepath.Join(t.TempDir(), "nodes.yaml")
	put := func(text string) {
		// As service discovery does: a new file takes the place of the old one.
		if err := errors.Join(os.WriteFile(path+".new", []byte(text), 0o600), os.Rename(path+".new", path)); err != nil {
			t.Fatal(err)
		}
	}
	put("- {node: a, actuator: http://a:1}\n")
	list, err := nodes.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	read := make(chan error, 1)
	reload := func() error { err := list.Reload(); read <- err; return err }
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	follow := nodesfile.Follow(path, time.Millisecond, reload, slog.New(slog.DiscardHandler))
	go func() { done <- follow(ctx) }()
	put("- {node: b, actuator: http://b:1}\n- {targets: ['c:1'], labels: {node: c}}\n")
	if err := <-read; err != nil {
		t.Error(err)
	}
	put("no list")
	if err := <-read; err == nil {
		t.Error("a bad file was taken")
	}
	cancel()
	<-done
	find := func(name string) nodes.Node { n, _ := list.Find(name); return n }
	if find("a").Actuator != "" || find("b").Actuator != "http://b:1" || find("c").Actuator != "http://c:1" {
		t.Errorf("%+v", list.List())
	}
}

// A reload of the actuator reads nodes.yaml again, with a configuration file and without.
func TestReloadReadsNodes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "nodes.yaml")
	put := func(text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	given := config.Config{Policy: "fifo"}
	for name, load := range map[string]func() (config.Config, error){
		"fifo": nil,
		"llf":  func() (config.Config, error) { return config.Config{Policy: "llf"}, nil },
	} {
		put("- {node: a, actuator: http://a:1}\n")
		list, load, err := nodesfile.Open(path, given, load)
		if err != nil {
			t.Fatal(err)
		}
		put("- {node: b, actuator: http://b:1}\n")
		if c, err := load(); err != nil || c.Policy != name {
			t.Errorf("%s: %+v, %v", name, c, err)
		}
		if n, _ := list.Find("b"); n.Actuator == "" {
			t.Errorf("%s: %+v", name, list.List())
		}
		put("no list")
		if _, err := load(); err == nil {
			t.Errorf("%s: a bad file was taken", name)
		}
	}
}

func TestWithoutAFile(t *testing.T) {
	if list, load, err := nodesfile.Open("", config.Config{}, nil); err != nil || load != nil || list.List() != nil {
		t.Errorf("%v, something to reload %v, %v", list.List(), load != nil, err)
	}
}
