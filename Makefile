# Two commands are enough: `make demo` shows what Laxity does, `make test` checks all of it.
# Everything else is listed by `make help`.

SHELL       := /bin/bash
export PATH := $(PATH):/usr/local/go/bin
# go-nvml's header marks old functions as deprecated; Laxity does not call them.
export CGO_CFLAGS ?= -Wno-deprecated-declarations

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
COMMIT  ?= $(shell git rev-parse --short HEAD 2>/dev/null || echo unknown)
VPKG    := github.com/prometheus/common/version
LDFLAGS := -s -w -X $(VPKG).Version=$(VERSION) -X $(VPKG).Revision=$(COMMIT)
TOOLS   := .tools
RERUNS  := $(TOOLS)/reruns.txt
PLUGIN_DIR ?= $(HOME)/.docker/cli-plugins

.PHONY: help build demo test flaky test-short fuzz lint fmt docs bench-report dashboards images bpf deb install-plugin clean

help: ## Show the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build: ## Build the programs into bin/
	@mkdir -p bin
	go build -trimpath -ldflags '$(LDFLAGS)' -o bin/ ./cmd/...

demo: build ## Run three containers with deadlines on one GPU (simulated if there is none), with Laxity and without
	@bin/laxity demo --hold=pause

test: build $(TOOLS)/gotestsum ## Run every test, under the race detector; needs Docker, gets Prometheus where it can
	@test/get-prometheus.sh
	@docker compose version >/dev/null 2>&1 || $(MAKE) --no-print-directory $(TOOLS)/docker-compose || echo "no Docker Compose: the test of the stack will skip"
	@$(MAKE) --no-print-directory $(TOOLS)/nfpm || echo "no nfpm: the test of the package will skip"
	@# Real containers share two cores with the compiler here, so that an event can come too
	@# late once: up to five tests that failed get one more try at the end, and both are told.
	@# CI fails for those that are not in test/flaky.txt (make flaky).
	@rm -f $(RERUNS)
	$(TOOLS)/gotestsum --format pkgname-and-test-fails --format-hide-empty-pkg --rerun-fails=1 --rerun-fails-max-failures=5 \
		--rerun-fails-run-root-test --rerun-fails-abort-on-data-race --rerun-fails-report=$(RERUNS) --packages=./... -- -race -timeout 20m
	cd actuator/placement/kubernetes/published && go test ./...  # a module of its own: Kubernetes' published types

flaky: ## Fail if a test of the last make test passed only when it was run again, unless test/flaky.txt says why
	@go run ./test/flaky $(RERUNS) test/flaky.txt

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

bench-report: build ## Write bench/README.md from the stored results in bench/results
	bin/laxity-bench report

dashboards: ## Write the Grafana dashboards in dashboards/ from what dashboards/generate says
	go run ./dashboards/generate

images: ## Build the images of the stack in compose/, from this checkout
	LAXITY_LDFLAGS='$(LDFLAGS)' compose/build.sh --sim

# A version that begins with a digit, as Debian wants it.
deb: build $(TOOLS)/nfpm ## Build the Debian package bin/laxity_VERSION_ARCH.deb
	version=$$(echo "$(VERSION)" | sed 's/^v//; /^[0-9][0-9.]*\(-\|$$\)/!s/^/0~git./; s/-/+/g') && \
	arch=$$(go env GOARCH) && \
	BIN=bin GOARCH=$$arch PACKAGE_VERSION=$$version $(TOOLS)/nfpm package --config package/nfpm.yaml --packager deb --target bin/laxity_$${version}_$$arch.deb

bpf: $(TOOLS)/bpf2go ## Make the BPF objects in internal/cudabpf from their C files; needs clang, llvm and libbpf-dev
	cd internal/cudabpf && go generate .

install-plugin: build ## Install the CLI as a Docker plugin: docker laxity …
	install -D -m 755 bin/laxity $(PLUGIN_DIR)/docker-laxity

clean: ## Remove what was built
	rm -rf bin $(TOOLS)

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
$(TOOLS)/nfpm: tools/stack/go.mod
	@mkdir -p $(TOOLS)
	@echo "building nfpm (once)"
	cd tools/stack && go build -o ../../$(TOOLS)/nfpm github.com/goreleaser/nfpm/v2/cmd/nfpm
$(TOOLS)/docker-compose: tools/stack/go.mod
	@mkdir -p $(TOOLS)
	@echo "building docker compose (once, some minutes)"
	cd tools/stack && go build -o ../../$(TOOLS)/docker-compose github.com/docker/compose/v2/cmd
