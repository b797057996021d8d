package main

import (
	"encoding/json"

	"github.com/prometheus/common/version"
)

// asPlugin tells whether the program was started by the Docker CLI, as
// `docker-laxity laxity ARGS`. It returns the arguments proper; nil when Docker
// asks for the plugin's metadata.
func asPlugin(name string, args []string) (bool, []string) {
	if name != "docker-laxity" {
		return false, nil
	}
	if len(args) == 1 && args[0] == "docker-cli-plugin-metadata" {
		return true, nil
	}
	if len(args) > 0 && args[0] == "laxity" {
		args = args[1:]
	}
	if args == nil {
		args = []string{}
	}
	return true, args
}

// pluginMetadata is what the Docker CLI asks of every plugin.
func pluginMetadata() string {
	b, _ := json.Marshal(map[string]string{
		"SchemaVersion":    "0.1.0",
		"Vendor":           "The Laxity authors",
		"Version":          version.Version,
		"ShortDescription": "Deadlines for containers that share GPUs",
		"URL":              "https://github.com/laxity/laxity",
	})
	return string(b)
}
