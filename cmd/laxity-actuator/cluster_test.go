package main

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/laxity/laxity/actuator"
	"github.com/laxity/laxity/actuator/config"
	"github.com/laxity/laxity/actuator/nodes"
)

func TestClusterFlagsNeedPrometheus(t *testing.T) {
	for _, flags := range [][]string{{"--swarm"}, {"--kubernetes"}} {
		if code := command(append(flags, "--state-dir="+t.TempDir())); code != 2 {
			t.Errorf("%v: status %d", flags, code)
		}
	}
}

func TestNodesFileFollowed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "nodes.yaml")
	put := func(text string) {
		// As service discovery does: a new file takes the place of the old one.
		if err := errors.Join(os.WriteFile(path+".new", []byte(text), 0o600), os.Rename(path+".new", path)); err != nil {
			t.Fatal(err)
		}
	}
	put("- {node: a, actuator: http://a:1}\n")
	var o actuator.Options
	list, err := openNodes(path, &o)
	if err != nil || o.Peers != list {
		t.Fatal(err)
	}
	read := make(chan error, 1)
	reload := func() error { err := list.Reload(); read <- err; return err }
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	follow := followFile(path, time.Millisecond, reload, slog.New(slog.DiscardHandler))
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
		o := actuator.Options{Config: given, Load: load}
		list, err := openNodes(path, &o)
		if err != nil {
			t.Fatal(err)
		}
		put("- {node: b, actuator: http://b:1}\n")
		if c, err := o.Load(); err != nil || c.Policy != name {
			t.Errorf("%s: %+v, %v", name, c, err)
		}
		if n, _ := list.Find("b"); n.Actuator == "" {
			t.Errorf("%s: %+v", name, list.List())
		}
		put("no list")
		if _, err := o.Load(); err == nil {
			t.Errorf("%s: a bad file was taken", name)
		}
	}
}

// A reload takes both files or none, and its error names the bad one.
func TestReloadTakesBothFilesOrNone(t *testing.T) {
	const oldNodes, newNodes = "- {node: a, actuator: http://a:1}\n", "- {node: b, actuator: http://b:1}\n"
	for name, tt := range map[string]struct {
		nodes, config       string
		badNodes, badConfig bool
	}{
		"both are good":            {newNodes, "policy: llf", false, false},
		"the configuration is bad": {newNodes, "policy: best", false, true},
		"a setting is unknown":     {newNodes, "polizy: llf", false, true},
		"the nodes are bad":        {"no list", "policy: llf", true, false},
	} {
		t.Run(name, func(t *testing.T) {
			nodesFile, configFile := write(t, oldNodes), write(t, "policy: fifo")
			base := config.Config{}.WithDefaults()
			o := actuator.Options{Load: func() (config.Config, error) { return loadConfig(configFile, base) }}
			list, err := openNodes(nodesFile, &o)
			if err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(os.WriteFile(nodesFile, []byte(tt.nodes), 0o600), os.WriteFile(configFile, []byte(tt.config), 0o600)); err != nil {
				t.Fatal(err)
			}
			c, err := o.Load()
			want := "b"
			switch {
			case tt.badNodes && (err == nil || !strings.Contains(err.Error(), nodesFile)),
				tt.badConfig && (err == nil || !strings.Contains(err.Error(), configFile)):
				t.Errorf("the error does not name the bad file: %v", err)
			case err != nil:
				want = "a"
			case tt.badNodes || tt.badConfig || c.Policy != "llf":
				t.Errorf("%+v, %v", c, err)
			}
			if l := list.List(); len(l) != 1 || l[0].Name != want {
				t.Errorf("nodes %+v, want %s", l, want)
			}
		})
	}
}
