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
PLUGIN_DIR ?= $(HOME)/.docker/cli-plugins

.PHONY: help build demo test test-short lint fmt bench-report install-plugin clean

help: ## Show the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build: ## Build the three programs into bin/
	@mkdir -p bin
	go build -trimpath -ldflags '$(LDFLAGS)' -o bin/ ./cmd/...

demo: build ## Run three containers with deadlines on one GPU (simulated if there is none), with Laxity and without
	@bin/laxity demo

test: build $(TOOLS)/gotestsum ## Run every test, under the race detector; needs Docker, gets Prometheus where it can
	@test/get-prometheus.sh
	$(TOOLS)/gotestsum --format pkgname-and-test-fails --format-hide-empty-pkg -- -race -timeout 20m ./...

test-short: ## Run the tests that need neither Docker nor Prometheus
	go test -short ./...

lint: $(TOOLS)/golangci-lint ## Check formatting, go vet and golangci-lint
	@test -z "$$(gofmt -l $$(git ls-files '*.go'))" || { echo "gofmt these:"; gofmt -l $$(git ls-files '*.go'); exit 1; }
	$(TOOLS)/golangci-lint run ./...

fmt: ## Format the Go code
	gofmt -w $$(git ls-files '*.go')

bench-report: build ## Write bench/README.md from the stored results in bench/results
	bin/laxity bench-report

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
