# Two commands are enough: `make demo` shows what Laxity does, `make test` checks all of it.
# Everything else is listed by `make help`.

SHELL       := /bin/bash
export PATH := $(PATH):/usr/local/go/bin
# go-nvml's header marks old functions as deprecated; Laxity does not call them.
export CGO_CFLAGS ?= -Wno-deprecated-declarations

# Before the first tag: how many commits there are, so that packages sort.
VERSION ?= $(shell git describe --tags --dirty 2>/dev/null || echo v0.0.0-$$(git rev-list --count HEAD)-g$$(git rev-parse --short HEAD))
COMMIT  ?= $(shell git describe --always --dirty --abbrev=12 --exclude='*' 2>/dev/null || echo unknown)
VPKG    := github.com/prometheus/common/version
LDFLAGS := -s -w -X $(VPKG).Version=$(VERSION) -X $(VPKG).Revision=$(COMMIT)
TOOLS   := .tools
RERUNS  := $(TOOLS)/reruns.txt
PLUGIN_DIR ?= $(HOME)/.docker/cli-plugins

.PHONY: help build demo test flaky test-short fuzz lint fmt docs bench-report dashboards images bpf dist dist-twice manifests test-arm64 test-kubernetes install-plugin clean

help: ## Show the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  make %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build: ## Build the programs into bin/
	@mkdir -p bin
	go run ./exporter/device/sim/prebuild
	go build -trimpath -ldflags '$(LDFLAGS)' -o bin/ ./cmd/...

demo: build ## Run three containers with deadlines on one GPU (simulated if there is none), with Laxity and without
	@bin/laxity demo --hold=pause

test: build $(TOOLS)/gotestsum ## Run every test, under the race detector; needs Docker, gets Prometheus where it can
	@test/get-prometheus.sh
	@docker compose version >/dev/null 2>&1 || $(MAKE) --no-print-directory $(TOOLS)/docker-compose || echo "no Docker Compose: the test of the stack will skip"
	@$(MAKE) --no-print-directory $(TOOLS)/release || echo "no tools/release: the test of the packages will skip"
	@# Real containers share two cores with the compiler here, so that an event can come too
	@# late once: up to five tests that failed get one more try at the end, and both are told.
	@# CI fails for those that are not in test/flaky.txt (make flaky).
	@rm -f $(RERUNS)
	$(TOOLS)/gotestsum --format pkgname-and-test-fails --format-hide-empty-pkg --rerun-fails=1 --rerun-fails-max-failures=5 \
		--rerun-fails-run-root-test --rerun-fails-abort-on-data-race --rerun-fails-report=$(RERUNS) --packages=./... -- -race -timeout 20m
	cd actuator/placement/kubernetes/published && go test ./...  # a module of its own: Kubernetes' published types
	cd tools/release && go test ./...
	cd deploy/helm/check && go test ./...  # helm, and Kubernetes' types

flaky: ## Fail if a test of the last make test passed only when it was run again, unless test/flaky.txt says why
	@go run ./test/flaky $(RERUNS) test/flaky.txt

# Pure packages reach nothing of the machine, so that Debian's qemu-user is enough to run their tests.
test-arm64: ## Run the tests of the pure packages for arm64, under qemu-user
	LAXITY_ARM64=1 go test -count=1 -v -timeout 60m -run '^TestPurePackagesOnARM64$$' .

test-kubernetes: $(TOOLS)/kube-scheduler ## Run the tests of the scheduler extender with the real kube-scheduler
	LAXITY_REQUIRE=kubernetes go test -race -count=1 -v -timeout 10m -run '^TestKubeScheduler' ./cmd/laxity-actuator

test-short: ## Run the tests that need neither Docker nor Prometheus
	go test -short ./...

FUZZ_TIME ?= 20s
fuzz: ## Feed made-up input to every reader of what others write, FUZZ_TIME (20s) each; not part of make test
	@FUZZ_TIME=$(FUZZ_TIME) test/fuzz.sh

lint: $(TOOLS)/golangci-lint ## Check formatting, go vet and golangci-lint
	@test -z "$$(gofmt -l $$(git ls-files '*.go'))" || { echo "gofmt these:"; gofmt -l $$(git ls-files '*.go'); exit 1; }
	$(TOOLS)/golangci-lint run ./...

fmt: ## Format the Go code
	gofmt -w $$(git ls-files '*.go')

docs: ## Make the reference pages in docs/reference from the code
	LAXITY_DOCS=write go test -count=1 -run '^TestReference' ./docs ./cmd/laxity ./cmd/laxity-bench ./cmd/laxity-exporter ./cmd/laxity-actuator

bench-report: build ## Compute the figures in bench/results from their rows, and write bench/README.md and bench/papers.md
	bin/laxity-bench report

dashboards: ## Write the Grafana dashboards in dashboards/ from what dashboards/generate says
	go run ./dashboards/generate

manifests: ## Write what deploy/ has from the chart: its copies of rules and dashboards, and the plain manifests
	cd deploy/helm/check && LAXITY_MANIFESTS=write go test -count=1 -run '^(TestFiles|TestManifests)$$' ./...

images: ## Build the images of the stack in compose/, from this checkout
	LAXITY_LDFLAGS='$(LDFLAGS)' compose/build.sh --sim --images

ARCHS ?= amd64,arm64
RELEASE = $(TOOLS)/release --version='$(VERSION)' --commit='$(COMMIT)' --epoch="$$(git log -1 --format=%ct)" --archs=$(ARCHS)

dist: $(TOOLS)/release ## Make the release for ARCHS (amd64,arm64): archives, .deb, .rpm, lists of parts and checksums in dist/
	$(RELEASE) --out=dist

dist-twice: dist ## Make the release a second time, in another folder with empty caches, and compare the bytes
	tools/release/twice.sh $(RELEASE)

bpf: $(TOOLS)/bpf2go ## Make the BPF objects in internal/cudabpf from their C files; needs clang, llvm and libbpf-dev
	cd internal/cudabpf && go generate .

install-plugin: build ## Install the CLI as a Docker plugin: docker laxity …
	install -D -m 755 bin/laxity $(PLUGIN_DIR)/docker-laxity

clean: ## Remove what was built
	rm -rf bin dist $(TOOLS)

# Tools are a module of their own, so that they weigh nothing on the product's dependencies.
$(TOOLS)/gotestsum: tools/go.mod
	@mkdir -p $(TOOLS)
	cd tools && go build -o ../$(TOOLS)/gotestsum gotest.tools/gotestsum
$(TOOLS)/golangci-lint: tools/go.mod
	@mkdir -p $(TOOLS)
	@echo "building golangci-lint (once, some minutes)"
	cd tools && go build -o ../$(TOOLS)/golangci-lint github.com/golangci/golangci-lint/v2/cmd/golangci-lint
$(TOOLS)/bpf2go: tools/go.mod
	@mkdir -p $(TOOLS)
	cd tools && go build -o ../$(TOOLS)/bpf2go github.com/cilium/ebpf/cmd/bpf2go
$(TOOLS)/release: tools/release/go.mod $(wildcard tools/release/*.go)
	@mkdir -p $(TOOLS)
	cd tools/release && go build -o ../../$(TOOLS)/release .
$(TOOLS)/kube-scheduler: tools/kubernetes/go.mod
	@mkdir -p $(TOOLS)
	@echo "building kube-scheduler (once, some minutes)"
	cd tools/kubernetes && go build -o ../../$(TOOLS)/kube-scheduler k8s.io/kubernetes/cmd/kube-scheduler
$(TOOLS)/docker-compose: tools/stack/go.mod
	@mkdir -p $(TOOLS)
	@echo "building docker compose (once, some minutes)"
	cd tools/stack && go build -o ../../$(TOOLS)/docker-compose github.com/docker/compose/v2/cmd
