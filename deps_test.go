// Package laxity_test keeps go.mod complete while the packages that need these
// modules are being written.
package laxity_test

import (
	_ "github.com/NVIDIA/go-nvml/pkg/nvml"
	_ "github.com/alecthomas/kingpin/v2"
	_ "github.com/cilium/ebpf"
	_ "github.com/cilium/ebpf/link"
	_ "github.com/cilium/ebpf/ringbuf"
	_ "github.com/docker/docker/client"
	_ "github.com/go-chi/chi/v5"
	_ "github.com/oklog/run"
	_ "github.com/prometheus/client_golang/api"
	_ "github.com/prometheus/client_golang/prometheus"
	_ "github.com/prometheus/client_golang/prometheus/promhttp"
	_ "github.com/prometheus/client_golang/prometheus/testutil"
	_ "github.com/prometheus/common/promslog"
	_ "github.com/prometheus/exporter-toolkit/web"
	_ "github.com/prometheus/prometheus/promql"
	_ "github.com/prometheus/prometheus/rules"
	_ "github.com/prometheus/prometheus/tsdb"
	_ "go.etcd.io/bbolt"
	_ "go.yaml.in/yaml/v3"
	_ "golang.org/x/sys/unix"
	_ "pgregory.net/rapid"
)
