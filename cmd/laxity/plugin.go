package main

import (
	"encoding/json"
	"slices"

	"github.com/prometheus/common/version"
)

// asPlugin reports whether the Docker CLI started the program, as `docker-laxity OPTIONS
// laxity ARGS`. It returns docker's own options (--context, -H …) and the arguments proper;
// nil when Docker asks for the plugin's metadata.
func asPlugin(name string, args []string) (plugin bool, options, rest []string) {
	if name != "docker-laxity" {
		return false, nil, args
	}
	if len(args) == 1 && args[0] == "docker-cli-plugin-metadata" {
		return true, nil, nil
	}
	if i := slices.Index(args, "laxity"); i >= 0 {
		options, args = args[:i], args[i+1:]
	}
	if args == nil {
		args = []string{}
	}
	return true, options, args
}

// pluginMetadata is what the Docker CLI requests from every plugin.
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
