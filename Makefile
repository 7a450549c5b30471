# What a person types in this repository. `make` alone lists the targets.
SHELL       := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS   += --no-print-directory

GO       ?= go
BIN      := bin
SERVICES := admission profiler planner executor nodeagent energy experiments web
# What a person installs: the command, the server that it starts, the supervisor of jobs, and the trainer of the demo and
# the examples.
PROGRAMS := $(BIN)/switchyard $(BIN)/switchyard-server $(BIN)/switchyard-supervisor $(BIN)/switchyard-trainer
LINTER   := $(BIN)/golangci-lint
LINTER_PACKAGE := github.com/golangci/golangci-lint/v2/cmd/golangci-lint
PYTHON   ?= $(firstword $(wildcard /usr/bin/python3) $(shell command -v python3))

# Flags for every `go test` of `make test`, for example `make test TESTFLAGS=-count=1`.
TESTFLAGS ?=
# One package to work on, for example `make test PKG=./libs/event/...`.
PKG       ?= ./...
# The generators of the pages on facts and records and of the Helm chart (it holds kustomize and Helm), the maker of releases and that of the
# documentation site (it holds Hugo) are Go modules of their own, so that what they need is no dependency of the product.
GEN          = tools/gen
CHART        = tools/chart
RELEASE      = tools/release
SITE         = tools/site
TOOL_MODULES = $(foreach module,$(GEN) $(CHART) $(RELEASE) $(SITE),$(if $(filter ./... ./$(module)%,$(PKG)),$(module)))
# The laboratory is a Go module of its own: `make test PKG=./lab/sharing` runs there, and all packages are those of both modules.
LAB         := $(BIN)/switchyard-lab
PRODUCT_PKG  = $(filter-out ./lab/% ./$(GEN)% ./$(CHART)% ./$(RELEASE)% ./$(SITE)%,$(PKG))
LAB_PKG      = $(if $(filter ./...,$(PKG)),./...,$(patsubst ./lab/%,./%,$(filter ./lab/%,$(PKG))))
BENCH     ?= .
BENCHTIME ?= 1s
FUZZTIME  ?= 20s
RUNS      ?= 5

# Recorded traces and measurements that some tests and benchmarks replay.
ifndef SWITCHYARD_DATA
ifneq ($(wildcard ../shared/data),)
SWITCHYARD_DATA := $(abspath ../shared/data)
endif
endif
ifdef SWITCHYARD_DATA
export SWITCHYARD_DATA
endif

# The NVML header marks old calls as deprecated; its binding still wraps them.
CGO_CFLAGS ?= -g -O2 -Wno-deprecated-declarations
export CGO_CFLAGS

.PHONY: secrets vulnerabilities e2e-spark bench-spark site workflows gpu release e2e-deb chart chart-check wheel test-wheel page page-picture page-fresh chaos test-docs test-scripts days phases help influxd images image-root e2e-compose demo build test test-go test-python race check vet lint lint-devcluster generated skips prose links generate bench bench-share bench-scale bench-web bench-sched bench-live bench-predict bench-net bench-search bench-tune e2e-net e2e-slurm e2e-quota fuzz fuzz-long clean devcluster devcluster-stop e2e-kube bench-kube tools-go tools-cc FORCE

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  make %-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(PROGRAMS) ## watch real training jobs being scheduled on this machine (under three minutes)
	$(BIN)/switchyard demo

build: $(PROGRAMS) $(SERVICES:%=$(BIN)/switchyard-%) $(LAB) ## build the command, its server, the eight services, the example trainer and the laboratory into bin/

# Go's build cache knows what changed, so every build asks it.
# The command needs no C compiler.
$(BIN)/switchyard: tools-go FORCE
	CGO_ENABLED=0 $(GO) build -ldflags '-s -w' -o $@ ./cmd/switchyard

$(BIN)/switchyard-server: tools-cc FORCE
	$(GO) build -ldflags '-s -w' -o $@ ./cmd/switchyard-server

$(BIN)/switchyard-supervisor: tools-go FORCE
	CGO_ENABLED=0 $(GO) build -ldflags '-s -w' -o $@ ./cmd/switchyard-supervisor

$(BIN)/switchyard-trainer: tools-cc FORCE
	$(GO) build -o $@ ./examples/gotrainer

$(LAB): tools-go FORCE
	cd lab && $(GO) build -o $(abspath $@) ./cmd/switchyard-lab

$(SERVICES:%=$(BIN)/switchyard-%): $(BIN)/switchyard-%: tools-cc FORCE
	$(GO) build -o $@ ./services/$*/cmd/$*

# Python first: go test's closing lines stay at the end of the output. The longest packages begin before the others, two
# at a time: tests with a browser, or of measured energy, fail where four share two processors. `make check` vets all
# packages.
test: test-python test-go ## run every test, Go and Python

test-go: tools-cc influxd
	$(if $(PRODUCT_PKG),$(GO) test -vet=off -timeout 15m $(TESTFLAGS) $(if $(filter ./...,$(PRODUCT_PKG)),./test/system) $(PRODUCT_PKG))
	$(if $(LAB_PKG),cd lab && $(GO) test -vet=off -timeout 9m $(TESTFLAGS) $(if $(filter ./...,$(LAB_PKG)),./traces ./sharing) $(LAB_PKG))
	$(foreach module,$(filter-out $(CHART),$(TOOL_MODULES)),(cd $(module) && $(GO) test -vet=off $(TESTFLAGS) ./...);)

test-python:
ifeq ($(PYTHON),)
	@echo 'SKIPPED the Python tests: there is no python3 here (Debian: apt-get install python3)'
else
	$(PYTHON) -m unittest discover -s libs/python/tests -t libs/python
endif

WHEELS := $(BIN)/python

wheel: ## build the wheel and the sdist of libs/python into bin/python
	@rm -rf $(WHEELS) && mkdir -p $(WHEELS)
	cd libs/python && $(PYTHON) -B -c 'import sys, build_backend as b; print(*(make(sys.argv[1]) for make in (b.build_wheel, b.build_sdist)), sep="\n")' $(abspath $(WHEELS))

test-wheel: wheel ## install them in a fresh environment of every Python here, in every way that users do (two minutes; PYTHONS names more)
	$(PYTHON) -B libs/python/tests/every_python.py $(WHEELS)

# A real InfluxDB for the tests: 1.8, since later versions cannot be built from Go modules. A minute the first time; without it those tests skip themselves.
INFLUXD         := $(BIN)/influxd
INFLUXD_PACKAGE := github.com/influxdata/influxdb/cmd/influxd
INFLUXD_VERSION := $(shell sed -n 's|.*github.com/influxdata/influxdb v\([0-9.]*\).*|\1|p' go.influxd.mod)

$(INFLUXD): go.influxd.mod go.influxd.sum | tools-go
	CGO_ENABLED=0 nice $(GO) build -modfile=go.influxd.mod -ldflags '-s -w -X main.version=$(INFLUXD_VERSION)' -o $@ $(INFLUXD_PACKAGE)
	@touch $@

influxd: tools-go
	@$(MAKE) -s $(INFLUXD) || echo 'SKIPPED the tests on a real InfluxDB: it could not be built'

test-docs: tools-cc ## run every command of the README and of its pages in a fresh clone of what is committed (minutes)
	DOCS=1 $(GO) test -count=1 -v -timeout 30m -run TestTheDocsRun ./test/docs

test-long: tools-cc ## replay all published workloads, of which `make test` replays some (long; needs SWITCHYARD_DATA)
ifndef SWITCHYARD_DATA
	@echo 'SWITCHYARD_DATA does not name the folder of published traces'; exit 1
else
	cd lab && SWITCHYARD_LONG_TESTS=1 $(GO) test -count=1 -v -timeout 0 -run 'Published|Shares|Gain' ./traces ./sharing
endif

test-scripts: tools-cc ## run the table of user scripts with the rows that `make test` leaves out (PyTorch, torchrun, a hung script), and preempt stock scripts of PyTorch
	SCRIPTS=1 $(GO) test -count=1 -v -run 'TestScriptsEndAsTheirUsersExpect|TestStockTorch' ./test/system

e2e-spark: tools-cc ## tune the executors of a cluster of the stand-in for Spark and BigDL, searched by ASHA and by Hyperband (three minutes)
	SPARK=1 $(GO) test -count=1 -v -run OfASparkCluster ./test/system

bench-spark: tools-cc ## compare V1, V2 and PipeTune on that stand-in with PipeTune's measured epochs: RUNS of each (half an hour; needs SWITCHYARD_DATA)
	SPARK_RUNS=$(RUNS) $(GO) test -count=1 -v -timeout 3h -run ModesAreComparedOnASparkCluster ./test/system

# How long faults are injected, and which: the same seed draws the same faults.
MINUTES ?= 10
SEED    ?= $(shell echo $$((RANDOM % 10000)))

chaos: tools-cc ## kill, stop and spoil every part under load for MINUTES, and judge by a ledger apart from the bus (SEED=1 repeats a run, PART=damage runs that part, ROWS=memory the faults of that name)
	CHAOS=$(MINUTES) SEED=$(SEED) ROWS='$(ROWS)' $(GO) test -count=1 -v -timeout 0 -run 'TestChaos$$$(if $(PART),/$(PART))' ./test/system

race: tools-cc ## run the Go tests under the race detector (slow)
	$(if $(PRODUCT_PKG),$(GO) test -race $(TESTFLAGS) $(PRODUCT_PKG))
	$(if $(LAB_PKG),cd lab && $(GO) test -race $(TESTFLAGS) $(LAB_PKG))

check: vet portable lint generated chart-check page-fresh workflows skips prose links secrets vulnerabilities ## everything that must hold besides the tests: vet, the client of macOS, lint, generated files, the Helm chart, workflows, listed skips, prose, links, no secrets, no known vulnerabilities

vet: tools-cc
	$(if $(PRODUCT_PKG),$(GO) vet $(PRODUCT_PKG))
	$(if $(LAB_PKG),cd lab && $(GO) vet $(LAB_PKG))
	$(foreach module,$(TOOL_MODULES),(cd $(module) && $(GO) vet ./...);)

portable: tools-go ## see that the client builds for macOS, for which it is released
	CGO_ENABLED=0 GOOS=darwin GOARCH=arm64 $(GO) build -o /dev/null ./cmd/switchyard

lint: tools-cc $(LINTER) ## golangci-lint with .golangci.yml
	$(if $(PRODUCT_PKG),$(LINTER) run $(PRODUCT_PKG))
	$(if $(LAB_PKG),cd lab && $(abspath $(LINTER)) run $(LAB_PKG))
	$(foreach module,$(TOOL_MODULES),(cd $(module) && $(abspath $(LINTER)) run ./...);)

# Apart from `check`: it reads the sources of all of Kubernetes, which takes minutes and gigabytes.
lint-devcluster: tools-cc $(LINTER) ## the same for the module of the development cluster
	cd $(DEVCLUSTER_MODULE) && CGO_ENABLED=0 nice $(abspath $(LINTER)) run --build-tags e2e --timeout 30m ./...

# A few minutes the first time, then only when the pinned version changes.
$(LINTER): go.tools.mod go.tools.sum | tools-go
	@echo 'building the linter (minutes the first time)'
	nice $(GO) build -modfile=go.tools.mod -o $@ $(LINTER_PACKAGE)
	@touch $@

generated: tools-cc
	cd $(GEN) && $(GO) run . -check
	$(GO) run ./deploy/grafana -check

# The chart is that of the manifests, and Helm finds nothing wrong with it. Minutes the first time, to compile Helm.
chart-check: tools-go
	$(if $(filter $(CHART),$(TOOL_MODULES)),cd $(CHART) && nice $(GO) test $(TESTFLAGS) ./...)

chart: tools-go ## make the Helm chart from deploy/k8s and deploy/chart, into bin/chart
	cd $(CHART) && nice $(GO) run . -root $(CURDIR) -out $(abspath $(BIN))/chart

# The page is built and committed, so that nobody needs node to build the rest.
PAGE := services/web/page

page: ## build the page that people open in a browser (node)
	cd $(PAGE) && npm ci --ignore-scripts --no-audit --no-fund && npx tsc --noEmit && node build.mjs

page-picture: tools-go ## draw docs/page.png from a running installation (chromium; LINK=what `switchyard open` prints)
	$(GO) run ./test/web/picture -link '$(LINK)' -height 640 -at '#/yard=docs/page.png'

page-fresh:
	@if command -v npm >/dev/null; then \
	    cd $(PAGE) && npm ci --ignore-scripts --no-audit --no-fund --silent && npx tsc --noEmit && out=$$(mktemp -d) && node build.mjs $$out && \
	    { diff -r $$out dist || { echo 'the built page differs from its sources: run `make page`' >&2; exit 1; }; } && rm -r $$out; \
	else echo 'SKIPPED the comparison of the built page with its sources: there is no node here (Debian: apt-get install npm)'; fi

WORKFLOWS := $(BIN)/actionlint

$(WORKFLOWS): go.actionlint.mod go.actionlint.sum | tools-go
	CGO_ENABLED=0 nice $(GO) build -modfile=go.actionlint.mod -ldflags '-s -w' -o $@ github.com/rhysd/actionlint/cmd/actionlint
	@touch $@

workflows: $(WORKFLOWS) # the workflows are what GitHub reads, their actions and scripts included
	$(WORKFLOWS)

SCANNERS := $(BIN)/gitleaks $(BIN)/govulncheck

$(SCANNERS): go.scans.mod go.scans.sum | tools-go
	CGO_ENABLED=0 nice $(GO) build -modfile=go.scans.mod -ldflags '-s -w' -o $@ $(if $(filter %gitleaks,$@),github.com/zricethezav/gitleaks/v8,golang.org/x/vuln/cmd/govulncheck)
	@touch $@

secrets: export GIT_CONFIG_COUNT = 1
secrets: export GIT_CONFIG_KEY_0 = safe.directory
secrets: export GIT_CONFIG_VALUE_0 = *
secrets: $(BIN)/gitleaks ## look for secrets in the history, and in what is not committed yet (.gitleaks.toml says what is none)
	nice $(BIN)/gitleaks git --no-banner --redact --log-level warn -v .
	nice $(BIN)/gitleaks git --no-banner --redact --log-level warn -v --pre-commit .

# The list of vulnerabilities is that of vuln.go.dev, or VULNDB=file:///folder with a copy of it.
VULNDB ?=

vulnerabilities: $(BIN)/govulncheck ## look for known vulnerabilities that the programs reach (VULNDB=file:///folder names a copy of vuln.go.dev)
	@code=0; said=$$(nice $(BIN)/govulncheck $(if $(VULNDB),-db $(VULNDB)) ./... 2>&1) || code=$$?; \
	if [ $$code = 1 ] && grep -q 'fetching vulnerabilities' <<<"$$said"; then \
	    echo 'SKIPPED the scan for known vulnerabilities: vuln.go.dev cannot be reached from here, and VULNDB names no copy of it'; \
	else echo "$$said"; exit $$code; fi

skips: tools-go
	$(GO) run ./tools/skipcheck

prose: tools-go
	$(GO) run ./tools/prosecheck

links: $(PROGRAMS) $(LAB)
	$(GO) run ./tools/linkcheck -bin $(BIN)
	cd $(SITE) && $(GO) run .

# Minutes the first time, to compile Hugo.
HUGO := $(BIN)/hugo

$(HUGO): $(SITE)/go.mod $(SITE)/go.sum | tools-go
	cd $(SITE) && CGO_ENABLED=0 nice $(GO) build -ldflags '-s -w' -o $(abspath $@) github.com/gohugoio/hugo
	@touch $@

site: $(HUGO) ## build the documentation site into bin/site, and check every link of it
	cd $(SITE) && $(GO) run . -hugo $(abspath $(HUGO)) -out $(abspath $(BIN))/site

generate: tools-cc ## write the generated files anew
	cd $(GEN) && $(GO) run .
	$(GO) run ./cmd/switchyard-server reference > docs/configuration.md
	{ $(GO) run ./cmd/switchyard manual; $(GO) run ./cmd/switchyard-server manual; } > docs/cli.md
	$(GO) run ./cmd/switchyard config schema > deploy/switchyard.schema.json
	$(GO) run ./deploy/grafana

bench: tools-cc ## run the benchmarks (BENCH=pattern BENCHTIME=1s)
	@bench() { \
	    packages=$$(grep -rlE --include='*_test.go' --exclude-dir=devcluster '^func Benchmark' . | grep -v '^\./lab/' | xargs -r -n1 dirname | sort -u); \
	    [ -z "$$packages" ] || $(GO) test -run '^$$' -bench '$(BENCH)' -benchtime $(BENCHTIME) -benchmem -timeout 60m $$packages; \
	}; \
	bench; cd lab; bench

bench-share: tools-cc ## two trainings that share the cores against one after the other (a minute, on an idle machine)
	$(GO) test -run '^$$' -bench '^BenchmarkSharing$$' -benchtime 5x -timeout 20m ./test/bench

# How many jobs are submitted at once.
SCALE_JOBS ?= 10000

bench-scale: tools-cc ## SCALE_JOBS jobs at once: how many are admitted a second, when the register is complete, how long a cancel takes; what ps, a restart and doing nothing cost then; what a cluster of SCALE_NODES costs, how fast the jobs run as no-ops, and a start beside Slurm's (minutes)
	SCALE_JOBS=$(SCALE_JOBS) $(GO) test -run '^$$' -bench '^Benchmark(LongQueue|Installed|Cluster|Drain|BesideSlurm)$$' -benchtime 1x -timeout 120m ./test/bench

bench-web: ## what the page costs with 10,000 jobs: first paint, an event to the screen, a minute without connection, the service with 20 open pages (minutes; chromium)
	$(GO) test -run '^$$' -bench '^BenchmarkThePage$$' -benchtime 1x -timeout 20m ./test/web

# The policies to compare, and how many of the published workloads.
POLICIES ?= fifo,srtf,drf,tetris,max-throughput,tiresias,optimus,pollux,switchyard
WORKLOADS ?= 1 2 3 4

bench-tune: $(PROGRAMS) ## compare the modes of tuning on this machine: RUNS of each, 25 minutes for 5
	$(call compare-modes,bench,--device-kind cpu --cpu-slots 2)
	@if $(PYTHON) -c 'import torch' 2>/dev/null; then $(call compare-modes,bench-torch,--sim-gpus 2); else echo 'no python3 with torch (Debian: apt-get install python3-torch): the PyTorch trainer is left out'; fi

# compare-modes runs an experiment in each mode on a bus and services of its own.
define compare-modes
dir=$$(mktemp -d); export SWITCHYARD_CONTEXT=$$dir/context.json PATH=$(dir $(PYTHON)):$$PATH; \
$(BIN)/switchyard up --data-dir $$dir --port 0 --http 127.0.0.1:0 $(2) --allow-root $(CURDIR) --log-level warn & up=$$!; \
trap 'kill $$up; wait $$up; rm -rf $$dir' EXIT; \
for i in $$(seq 100); do [ -e $$SWITCHYARD_CONTEXT ] && break; sleep 0.2; done; \
$(BIN)/switchyard tune compare examples/experiments/$(1).yaml --runs $(RUNS)
endef

bench-sched: $(LAB) ## compare the scheduling policies on the published workloads, into docs/comparison (needs SWITCHYARD_DATA)
ifndef SWITCHYARD_DATA
	@echo 'SWITCHYARD_DATA does not name the folder of published traces'; exit 1
else
	for load in workloads workloads-0.5 workloads-realistic; do \
	    files=$$(printf '%s\n' $(WORKLOADS) | sed "s|.*|$(SWITCHYARD_DATA)/pollux/$$load/workload-&.csv|" | paste -sd,); \
	    $(LAB) simulate compare --traces $(SWITCHYARD_DATA)/pollux --workload "$$files" --policy $(POLICIES) --out docs/comparison/$$load; \
	done
endif

# A live comparison takes the jobs, nodes and factor that docs/benchmarks.md names; QUICK=1 takes the first twelve jobs on three nodes.
COMMA  := ,
LIVE_POLICIES = $(if $(filter file,$(origin POLICIES)),fifo$(COMMA)srtf$(COMMA)optimus$(COMMA)switchyard,$(POLICIES))
JOBS   ?= $(if $(QUICK),12,0)
NODES  ?= $(if $(QUICK),3,12)
FACTOR ?= 60

bench-live: $(BIN)/switchyard-server $(BIN)/switchyard-supervisor $(BIN)/switchyard-nodeagent ## replay measured trainings on real services and in the simulator, and compare (hours; QUICK=1: ten minutes; POLICIES=, JOBS=, NODES=, FACTOR=; needs SWITCHYARD_DATA)
ifndef SWITCHYARD_DATA
	@echo 'SWITCHYARD_DATA does not name the folder of published traces'; exit 1
else
	cd lab && $(GO) build -o $(abspath $(BIN))/ ./cmd/switchyard-live ./cmd/switchyard-replay
	$(BIN)/switchyard-live --bin $(BIN) --traces $(SWITCHYARD_DATA)/pollux --policies $(LIVE_POLICIES) --jobs $(JOBS) --nodes $(NODES) --factor $(FACTOR)
endif

# The networks on which the publication of the probe matrix was measured.
NETWORKS ?= fattree:12 fattree:24 fattree:72 vl2:40,24,40 vl2:140,120,100 bcube:4,2 bcube:8,4

bench-net: $(BIN)/switchyard $(LAB) ## how fast paths to probe are chosen, how many, and how well lossy links are found
	for network in $(NETWORKS); do echo $$network; GOMAXPROCS=1 $(BIN)/switchyard net plan --topology $$network --alpha 2 --beta 1; done
	for goal in 1,0 2,0 3,0 1,1 1,2 3,2; do \
	    $(BIN)/switchyard net plan --topology fattree:18 --alpha $${goal%,*} --beta $${goal#*,}; \
	done
	for goal in 2,1 1,2 3,2; do \
	    echo fattree:48 $$goal; \
	    $(LAB) net simulate --topology fattree:48 --alpha $${goal%,*} --beta $${goal#*,} --failures 1,5,10,20,50 --runs 100; \
	done

# How much of each phase of the planner's core the published workloads and the streams of jobs that share GPUs reach.
phases: tools-cc ## print the statement coverage of each phase of the planner while published workloads are played (needs SWITCHYARD_DATA)
ifndef SWITCHYARD_DATA
	@echo 'SWITCHYARD_DATA does not name the folder of published traces'; exit 1
else
	cd lab && $(GO) test ./traces ./sharing -run 'Switchyard|Planner' -count=1 -coverprofile=$(CURDIR)/$(BIN)/phases.out \
	    -coverpkg=github.com/switchyard-dl/switchyard/services/planner/plan/... >/dev/null
	@awk -F'[: ,]' 'NR > 1 { n = split($$1, at, "/"); of = at[n-1]; key = $$1 $$2 $$3; size[key] = $$(NF-1); pack[key] = of; if ($$NF > 0) hit[key] = 1 } \
	    END { for (k in size) { all[pack[k]] += size[k]; if (k in hit) got[pack[k]] += size[k] } for (p in all) printf "%-10s %3.0f %%  of %d statements\n", p, 100*got[p]/all[p], all[p] }' $(BIN)/phases.out | sort
endif

bench-predict: $(LAB) ## how far predictions are off over the life of measured trainings, into docs/predictions.md (needs SWITCHYARD_DATA)
	$(LAB) predict --into docs/predictions.md

bench-search: $(LAB) ## how much searches try until they have one of the best points (needs SWITCHYARD_DATA)
ifndef SWITCHYARD_DATA
	@echo 'SWITCHYARD_DATA does not name the folder of recorded trainings'; exit 1
else
	$(LAB) simulate search --problem branin,hartmann6 --best 0.05,0.01
	$(LAB) simulate search --problem curves,crossing
	$(LAB) simulate search --problem bfs,jacobi,spkmeans --recorded $(SWITCHYARD_DATA)/pipetune/offline_res
endif

# How many random days of each policy are played.
DAYS ?= 20000

days: tools-cc ## the promises of plans on DAYS random days of each policy, over the product of all features (minutes)
	$(GO) test ./services/planner/plan -run 'PromisesOverTheProduct|WhateverItAsks' -rapid.seed=$$RANDOM -rapid.checks=$(DAYS) -timeout 0

fuzz: tools-cc ## run every fuzz target for FUZZTIME (20s), and the promises of plans on days that nobody has seen
	$(GO) test ./services/planner/plan -run 'KeepThePromises|PromisesOverTheProduct' -rapid.seed=$$RANDOM -rapid.checks=1000
	@grep -roE --include='*_test.go' --exclude-dir=devcluster --exclude-dir=bin --exclude-dir=tools '^func Fuzz[A-Za-z0-9_]+' . | sed 's/^\(.*\)\/[^/]*:func /\1 /' | sort | \
	while read -r package target; do \
	    echo "$$package $$target"; \
	    $(GO) test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 1x "$$package" </dev/null || exit 1; \
	done

fuzz-long: tools-cc ## run every fuzz target for a million executions (hours)
	@$(MAKE) --no-print-directory fuzz FUZZTIME=1000000x

clean: ## remove what make built
	rm -rf $(BIN) dist

tools-go:
	@command -v $(GO) >/dev/null || { \
	    echo 'Go is missing: install Go 1.26 or newer from https://go.dev/dl/ and put its bin folder on PATH'; exit 1; }

# The NVML binding is cgo; the NVIDIA library itself is loaded at run time and may be absent.
tools-cc: tools-go
	@printf '#include <stdlib.h>\n' | $${CC:-gcc} -E - >/dev/null 2>&1 || { \
	    echo 'A C compiler with the C library headers is missing (the NVML binding needs cgo).'; \
	    echo 'Debian or Ubuntu: apt-get install gcc libc6-dev   Fedora: dnf install gcc glibc-devel'; exit 1; }

# A real Kubernetes on this machine (docs/devcluster.md); a Go module of its own, which `go build ./...` does not see.
DEVCLUSTER        := $(BIN)/devcluster
DEVCLUSTER_MODULE := deploy/devcluster
KUBERNETES        := $(shell sed -n 's|^\tk8s.io/kubernetes ||p' $(DEVCLUSTER_MODULE)/go.mod)
KWOK_VERSION      := v0.7.0
# Nodes that kwok plays beside the real one, and the GPUs that each of them shows.
KWOK_NODES ?= 0
KWOK_GPUS  ?= 0
# For example --dir DIR; `make devcluster-stop` takes the same.
DEVCLUSTER_FLAGS ?=

devcluster: $(DEVCLUSTER) $(if $(filter-out 0,$(KWOK_NODES)),$(BIN)/kwok) ## start a real Kubernetes on this machine (root; KWOK_NODES=100 adds fake nodes)
	$(DEVCLUSTER) up $(DEVCLUSTER_FLAGS) --kwok-nodes $(KWOK_NODES) --kwok-gpus $(KWOK_GPUS)

devcluster-stop: ## end that Kubernetes and leave nothing of it
	[ ! -x $(DEVCLUSTER) ] || $(DEVCLUSTER) down $(DEVCLUSTER_FLAGS)

# The first build compiles Kubernetes: minutes. Without cgo it needs no C compiler.
$(DEVCLUSTER): tools-go FORCE
	cd $(DEVCLUSTER_MODULE) && CGO_ENABLED=0 nice $(GO) build -ldflags '-s -w -X k8s.io/component-base/version.gitVersion=$(KUBERNETES)' -o $(abspath $@) .
	cd $(DEVCLUSTER_MODULE) && CGO_ENABLED=0 $(GO) build -ldflags '-s -w' -o $(abspath $@)-pause ./pause

$(BIN)/kwok: | tools-go
	CGO_ENABLED=0 GOBIN=$(abspath $(BIN)) nice $(GO) install sigs.k8s.io/kwok/cmd/kwok@$(KWOK_VERSION)

HELM_VERSION := $(shell awk '$$1 == "helm.sh/helm/v3" { print $$2 }' $(CHART)/go.mod)

$(BIN)/helm: $(CHART)/go.mod | tools-go
	CGO_ENABLED=0 GOBIN=$(abspath $(BIN)) nice $(GO) install -ldflags '-s -w' helm.sh/helm/v3/cmd/helm@$(HELM_VERSION)
	@touch $@

e2e-kube: export HELM = $(abspath $(BIN)/helm)
e2e-kube: export HELM_CHART = $(abspath $(BIN)/chart/switchyard)
e2e-kube: $(DEVCLUSTER) $(BIN)/kwok $(BIN)/helm chart ## end-to-end tests on that Kubernetes (root)
	cd $(DEVCLUSTER_MODULE) && CGO_ENABLED=0 DEVCLUSTER=$(abspath $(DEVCLUSTER)) $(GO) test -tags e2e -count=1 -timeout 15m ./cluster ./dns
	DEVCLUSTER=$(abspath $(DEVCLUSTER)) $(GO) test -count=1 -timeout 30m -p 1 ./test/kube/...

# How many losses are injected, how long nothing is, and which links are drawn.
NET_RUNS ?= 5
NET_QUIET_SECONDS ?= 40
NET_SEED ?= 1

e2e-net: tools-go ## find lossy links in a network of namespaces, with real agents (root, Debian's nftables; NET_RUNS=20 NET_QUIET_SECONDS=600 for the record)
	NET_LAB=1 NET_RUNS=$(NET_RUNS) NET_QUIET_SECONDS=$(NET_QUIET_SECONDS) NET_SEED=$(NET_SEED) $(GO) test -count=1 -v -timeout 60m ./test/net

# For example GPU_FLAGS="-load 30s -image IMAGE".
GPU_FLAGS ?=

gpu: $(PROGRAMS) ## try on the GPUs of this machine all that touches hardware, into docs/gpu (fails without a GPU)
	$(GO) run ./test/gpu -bin $(BIN) $(GPU_FLAGS)

e2e-slurm: $(PROGRAMS) $(BIN)/switchyard-executor $(BIN)/switchyard-nodeagent ## jobs in an allocation of Slurm leave it before it ends (root, Debian's slurm-wlm; two minutes)
	SLURM_BIN=$(abspath $(BIN)) $(GO) test -count=1 -v -timeout 15m ./test/slurm

e2e-quota: ## the space of jobs is bounded by project quotas, in a kernel that is a process (Debian's user-mode-linux and xfsprogs; seconds)
	UML=$(or $(UML),/) $(GO) test -count=1 -v -run Quotas ./services/executor/local/launcher

bench-kube: $(DEVCLUSTER) $(BIN)/kwok ## what jobs on Kubernetes cost, on clusters of its own (root; 20 minutes)
	DEVCLUSTER=$(abspath $(DEVCLUSTER)) $(GO) test -run '^$$' -bench . -benchtime 1x -v -timeout 60m ./test/kube/jobs

# The file system of one service's image, below bin/image. With CGO=0 the binary is static and runs on any base image, the empty one included.
CGO ?= 0
IMAGE_ROOT = $(BIN)/image/$(SERVICE)

image-root:
	@rm -rf $(IMAGE_ROOT)
	@mkdir -p $(IMAGE_ROOT)/usr/local/bin $(IMAGE_ROOT)/var/lib/switchyard $(IMAGE_ROOT)/tmp
	@chmod 1777 $(IMAGE_ROOT)/tmp
	CGO_ENABLED=$(CGO) $(GO) build -trimpath -ldflags '-s -w' -o $(IMAGE_ROOT)/usr/local/bin/$(image-binary) ./$(image-package)
	@ln -s usr/local/bin/$(image-binary) $(IMAGE_ROOT)/entrypoint
	@if [ $(image-binary) = switchyard ]; then \
	    CGO_ENABLED=$(CGO) $(GO) build -trimpath -ldflags '-s -w' -o $(IMAGE_ROOT)/usr/local/bin/switchyard-server ./cmd/switchyard-server; \
	fi
	@if [ $(image-binary) = switchyard ] || [ $(SERVICE) = executor ]; then \
	    CGO_ENABLED=0 $(GO) build -trimpath -ldflags '-s -w' -o $(IMAGE_ROOT)/usr/local/bin/switchyard-supervisor ./cmd/switchyard-supervisor; \
	fi
	@if [ $(SERVICE) = executor ]; then \
	    CGO_ENABLED=0 $(GO) build -trimpath -ldflags '-s -w' -o $(IMAGE_ROOT)/usr/local/bin/switchyard-trainer ./examples/gotrainer; \
	    mkdir -p $(IMAGE_ROOT)/opt/switchyard; cp -r libs/python $(IMAGE_ROOT)/opt/switchyard/; \
	fi

image-binary = $(if $(filter $(SERVICES),$(SERVICE)),switchyard-$(SERVICE),switchyard)
image-package = $(if $(filter $(SERVICES),$(SERVICE)),services/$(SERVICE)/cmd/$(SERVICE),cmd/switchyard)

# Images of the services and of the command line. BASE applies to all of them; without it each has the one that suits it.
DOCKER ?= docker
BASE   ?=
base-nodeagent := debian:bookworm-slim
base-executor  := python:3.12-slim-bookworm
base = $(or $(BASE),$(base-$*),gcr.io/distroless/static-debian12:nonroot)

images: $(SERVICES:%=image-%) image-switchyard ## build a container image of each service (BASE=scratch: nothing but static binaries)

image-%: tools-cc
	$(MAKE) image-root SERVICE=$* CGO=$(if $(filter scratch,$(base)),0,$(if $(filter nodeagent,$*),1,0))
	$(DOCKER) build -q -t switchyard/$* --target packed --build-arg SERVICE=$* --build-arg BASE=$(base) -f deploy/images/Dockerfile .

# For example RELEASE_FLAGS='-only _amd64.deb'.
RELEASE_FLAGS ?=

release: tools-cc ## make all files of a release from the commit that is checked out, into dist (minutes; RELEASE_FLAGS='-only client' makes some)
	cd $(RELEASE) && nice $(GO) run . -out $(abspath dist) $(RELEASE_FLAGS)

# The commit whose package is there before the upgrade.
OLD ?= HEAD~1
DEB  = _$(shell $(GO) env GOARCH).deb

e2e-deb: tools-cc ## install the package of commit OLD in a fresh Debian, upgrade it while a job runs, and purge it (root, debootstrap; minutes)
	rm -rf $(BIN)/old && git clone --quiet --shared . $(BIN)/old && git -C $(BIN)/old checkout --quiet $$(git rev-parse $(OLD))
	$(MAKE) -C $(BIN)/old release RELEASE_FLAGS='-only $(DEB)'
	$(MAKE) release RELEASE_FLAGS='-only $(DEB)'
	DEB_OLD=$$(echo $(abspath $(BIN))/old/dist/*.deb) DEB_NEW=$$(echo $(abspath dist)/*.deb) $(GO) test -count=1 -v -timeout 30m ./test/deb
	rm -rf $(BIN)/old

e2e-compose: tools-go ## bring the compose stack up from images built here and run a job on it (needs a Docker engine)
	deploy/compose/e2e.sh
