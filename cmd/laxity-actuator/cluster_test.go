package main

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/laxity/laxity/actuator"
	"github.com/laxity/laxity/actuator/config"
)

func TestClusterFlagsNeedPrometheus(t *testing.T) {
	for _, flags := range [][]string{{"--swarm"}, {"--kubernetes"}} {
		if code := command(append(flags, "--state-dir="+t.TempDir())); code != 2 {
			t.Errorf("%v: status %d", flags, code)
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
			if err != nil || o.Peers != list {
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
