# Every target does its own set-up: a fresh machine needs Go, make and bash (and a C compiler for
# the race detector; without one the tests run without it and say so).

SHELL := /usr/bin/env bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := build
MAKEFLAGS += --no-print-directory

VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo unversioned)
MODULE  := github.com/busbar-mq/busbar
LDFLAGS := -s -w -X main.version=$(VERSION)
BIN     := $(CURDIR)/bin
TOOLS   := $(BIN)/tools
RACE    := $(shell CC=$$(go env CC); command -v "$${CC:-cc}" >/dev/null 2>&1 && echo -race)

T    ?= 30s
SEED ?= 1-8
MINUTES ?= 2
# KEEP is an absolute directory for the logs and histories of seeds that failed.
KEEP ?=
WITH ?=
N    ?= 5
SEQUENCES ?= 8000

comma := ,

# The program for users is compiled by the profile cmd/busbar/default.pgo. Tests and tools are not: all they import would
# be compiled twice.
export GOFLAGS := $(GOFLAGS) -pgo=off

.PHONY: build release test-release run test test-unit test-modules test-failover lint verify golden fuzz sim chaos outage powerloss nightly soak model mutations failovers conformance conformance-full compatibility \
        upgrades comparison pictures bench profile growth steady microbench cover cover-fsm coverage all clean help

## build: bin/busbar
build:
	@[[ -x bin/busbar ]] || echo 'building bin/busbar; the first time takes a few minutes, and next to nothing later' >&2
	@CGO_ENABLED=0 go build -pgo=auto -trimpath -buildvcs=false -ldflags '$(LDFLAGS)' -o bin/busbar ./cmd/busbar

## release: everything of a release in dist/ (VERSION=v1.2.3): programs, packages, the image, the chart, bills of materials, checksums
release:
	@mkdir -p $(TOOLS) && cd scripts/release && go build -o $(TOOLS)/release .
	@$(TOOLS)/release -version '$(VERSION)' $(RELEASE)

## test-release: make a release for one platform twice, look into it, and start its image
test-release:
	@cd scripts/release && go vet . && go test -count=1 -timeout 15m .

## run: one node for development on loopback, data in .cluster/dev; ARGS='--entities Config.json' and others
run: build
	@exec bin/busbar dev --data-dir .cluster/dev $(ARGS)

## test: vet, the tests of the packages and modules in their short form, the failover of a real cluster, attacks on one, and a release
#
# A cluster of processes waits more than it works, so its tests run beside those of the modules.
test: test-unit
	@$(MAKE) --no-print-directory -j 2 test-modules test-failover
	@$(MAKE) --no-print-directory test-release

## test-unit: vet and the tests of the packages in their short form
#
# With the tag loopcheck each connection asserts that its loop alone uses what it owns (transport/loop.go). The
# race detector makes the tests of partition take ten minutes on a slow machine, which is Go's own limit. Go does not see
# that files outside of the module test have changed, so the result of test/arch is not kept.
test-unit:
	@if [[ -z "$(RACE)" ]]; then echo 'no C compiler: the tests run without the race detector' >&2; fi
	@go vet ./...
	@go vet -tags loopcheck ./transport
	@go test $(RACE) -short -timeout 30m -tags loopcheck ./...
	@go test -short -timeout 30m -tags loopcheck ./partition
	@cd test && go test -count=1 -short ./arch && go test $(RACE) -short ./model && go test ./model -args -sequences=$(SEQUENCES)

## test-modules: vet and the short tests of the module test: backups in S3, checkers, manifests, simulation, chaos, Kubernetes acted out
#
# The tests are a module of their own, so that users of the broker do not depend on what they need.
test-modules: build
	@cd test && go vet ./... && go test -short ./backup ./check ./ledger ./simulation/... && \
		go test -short -count=1 ./chaos ./kubernetes/... ./schema # the binary and the manifests are no input of the cache
	@cd test/monitoring && go vet . && go test -count=1 .

## test-failover: failover and attacks on a cluster of real processes
#
# Side by side, for both wait more than they work.
test-failover: build
	@git rev-parse --quiet --verify HEAD~1 >/dev/null 2>&1 || \
		echo 'SKIPPED: no cluster is upgraded, for the history of git has no earlier commit' >&2
	@cd test && go vet ./conformance/... && go test -short -count=1 -timeout 8m -p 2 ./conformance/failover ./conformance/attack

## lint: staticcheck, errcheck, errorlint, ineffassign, goimports, pinned in scripts/lint
lint: $(TOOLS)/staticcheck
	@scripts/lint.sh

$(TOOLS)/staticcheck: scripts/lint/go.mod scripts/lint/main.go
	@mkdir -p $(TOOLS)
	@cd scripts/lint && go build -o $(TOOLS)/ honnef.co/go/tools/cmd/staticcheck \
		golang.org/x/tools/cmd/goimports && go build -o $(TOOLS)/check . && touch $@

## verify: format, modules, lint, links and diagrams of the documentation, references of comments, coverage of the specification
verify:
	@scripts/verify.sh

## golden: rewrite the golden files; read the diff before you commit it
golden:
	@scripts/golden.sh

## fuzz: every fuzz target for T each (T=30s)
fuzz:
	@scripts/fuzz.sh $(T)

## conformance: the official SDKs and other AMQP clients, the examples, the tests that their authors wrote, and the console in a browser
#
# The tests of this package wait more than they work, so those of the client libraries run beside them. So do the examples
# and the tests of the authors.
conformance: build
	@cd test/conformance && go vet ./...
	@(cd test/conformance && go test -count=1 -timeout 15m -parallel 8 . ./smoke) & beside=$$!; rc=0; \
		($(call languages,20m,-large=5)) || rc=$$?; wait $$beside || rc=$$?; exit $$rc
	@command -v dotnet >/dev/null || echo 'SKIPPED: the examples in C# did not run, for the command dotnet is not on the path'
	@cd test && go vet ./conformance/examples && (cd suites && go vet ./...) && \
		{ go test -count=1 -timeout 10m -parallel 8 ./conformance/examples & examples=$$!; rc=0; \
		(cd suites && go test -count=1 -timeout 20m .) || rc=$$?; wait $$examples || rc=$$?; exit $$rc; }
	@BUSBAR_GO_AMQP_TESTS=build go test -count=1 -timeout 10m -run TheGoClientsOwnTests ./transport
	@cd test && go vet ./console && go test -count=1 -timeout 10m -parallel 2 ./console
	@test/kits/run.sh

## test-kits: the kits that start a broker for tests of applications, each with the official SDK of its language
test-kits: build
	@test/kits/run.sh

# The scenarios of every client library, with a time limit, flags and how many libraries run at a time. It
# prints how long each library took.
TIMES := $(CURDIR)/.cluster/times-languages
languages = mkdir -p $(dir $(TIMES)) && rm -f $(TIMES) && cd test/conformance && rc=0 && \
	{ go test -count=1 -timeout $(1) $(if $(3),-parallel $(3)) ./languages -args -times=$(TIMES) $(2) || rc=$$?; } && \
	{ cat $(TIMES) 2>/dev/null || true; } && exit $$rc

## conformance-full: the scenarios with every version of every client library, three rounds
#
# Every version of versions.txt, three times over: what fails once in three is a defect too.
conformance-full: build
	@for i in 1 2 3; do echo "== conformance-full: round $$i" && \
		($(call languages,180m,-versions=all -wires=plain$(comma)tls$(comma)websocket -nodes=1$(comma)3,3)) && \
		(cd test/conformance && go test -count=1 -timeout 15m . ./smoke) && \
		(cd test/suites && go test -count=1 -timeout 20m .) || exit 1; done

## compatibility: write docs/compatibility.md, the table of scenarios by version of each library
compatibility: build
	@$(call languages,40m,-versions=all -write)

## chaos: break processes, networks and disks under the official Go SDK (MINUTES=10 CHAOS='-seed 7')
chaos: MINUTES = 10
chaos: build
	@cd test/chaos && mkdir -p $(BIN)/tools && go build -o $(BIN)/tools/chaos . && \
		$(BIN)/tools/chaos -binary $(BIN)/busbar -minutes $(MINUTES) $(CHAOS)

## powerloss: take the power from all nodes at once under load, over and over (ROUNDS=50)
powerloss: build
	@cd test/chaos && mkdir -p $(BIN)/tools && go build -o $(BIN)/tools/chaos . && \
		$(BIN)/tools/chaos -binary $(BIN)/busbar -powerloss $(or $(ROUNDS),50) $(CHAOS)

## outage: what clients of other nodes see of a fault, percentiles (TRIALS=20 FAULT=kill,stop,...)
outage: build
	@cd test/chaos && mkdir -p $(BIN)/tools && go build -o $(BIN)/tools/chaos . && \
		$(BIN)/tools/chaos -binary $(BIN)/busbar -outage -trials $(or $(TRIALS),20) -faults '$(FAULT)' $(CHAOS)

## soak: hours of load with a fault now and then, budgets for what must not leak, and behind it the model (HOURS=1)
soak: build $(BIN)/tools/model
	@cd test/chaos && go build -o $(BIN)/tools/chaos .
	@GOMAXPROCS=1 nice -n 19 $(MODEL) & model=$$!; trap 'kill $$model 2>/dev/null || true' EXIT; \
		(cd test/chaos && $(BIN)/tools/chaos -binary $(BIN)/busbar -soak $(or $(HOURS),1) $(CHAOS)); \
		wait $$model; trap - EXIT

## model: random commands to the state machine and to the independent model, seed after seed (HOURS=1)
model: $(BIN)/tools/model
	@$(MODEL)

MODEL = $(BIN)/tools/model -test.run TestStateAgreesWithTheModel -test.timeout 0 -test.v \
	-seed=$$(date +%s) -for=$(or $(HOURS),1)h

# Always, for its sources are everywhere; what has not changed costs nothing.
.PHONY: $(BIN)/tools/model
$(BIN)/tools/model:
	@mkdir -p $(BIN)/tools && cd test && go test -c -o $@ ./model

## mutations: recorded sessions of the Go SDK, changed by a seed, against a build with the race detector (STREAMS=4000)
#
# Half of the streams come first, the other half shows what memory they leave. 20,000 streams took 49 s on a busy machine of two cores.
STREAMS ?= 4000
mutations:
	@if [[ -z "$(RACE)" ]]; then echo 'SKIPPED: no C compiler, so no build with the race detector; the mutations were not run' >&2; exit 0; fi; \
		mkdir -p $(BIN)/tools && go build -race -trimpath -buildvcs=false -o $(BIN)/tools/busbar-race ./cmd/busbar && \
		cd test/conformance && BUSBAR_BINARY=$(BIN)/tools/busbar-race go test -count=1 -v -timeout 24h -run TestMutatedSessions \
			./attack -args -streams $(STREAMS)

## failovers: the failover test N times (N=5)
failovers: build
	@cd test/conformance && go test -count=$(N) -timeout 60m ./failover

## upgrades: exchange the program of a cluster under load, from the commit before on main and from the last tag, and back
upgrades: build
	@cd test/conformance && go test -count=1 -timeout 40m -v -run TestAClusterIsUpgraded ./failover -args -upgrade

## sim: whole clusters in virtual time with faults drawn from a seed (SEED=7 or 1-25, MINUTES=10, WITH=members,upgrades)
sim:
	@cd test/simulation && go vet ./... && go test -count=1 -timeout 24h -v -run '^TestSeeds$$' . \
		-args -seeds=$(SEED) -minutes=$(MINUTES) -keep=$(KEEP) -with='$(WITH)'

## nightly: what takes long: every test in full, every fuzz target, simulation, conformance
nightly: verify
	@go test $(RACE) -timeout 60m ./...
	@cd test && go test $(RACE) -timeout 60m ./arch ./model && go test -timeout 60m ./model -args -sequences=200000
	@$(MAKE) fuzz T=60s
	@$(MAKE) failovers N=10
	@$(MAKE) upgrades
	@cd test && go test -count=1 -timeout 15m ./chaos && go test -count=1 -timeout 15m ./check ./kubernetes ./ledger
	@cd test && go test -count=1 -timeout 60m ./kubernetes/acted -args -long
	@cd test/simulation && go test -count=1 -timeout 60m -run 'Canar|TestManyPartitions' .
	@cd test/simulation && go test -count=1 -timeout 90m ./scenario
	@cd scripts/release && go test -count=1 -timeout 60m . -args -long
	@$(MAKE) cover-fsm
	@$(MAKE) sim SEED=1-100 MINUTES=10
	@$(MAKE) conformance conformance-full
	@cd test/conformance && go test -count=1 -timeout 90m -run TestOrder . -args -long
	@cd test && go test -count=1 -timeout 60m ./console -args -long
	@cd test/conformance && go test -count=1 -timeout 30m -run TestALargeMessage . -args -large 100
	@cd test/conformance && go test -count=1 -timeout 240m -run TestABackup . -args -backup 1000000 && \
		go test -count=1 -timeout 30m -run TestABackup . -args -flips 500
	@cd test/conformance && go test -count=1 -timeout 300m ./attack -args -long
	@$(MAKE) mutations STREAMS=1000000
	@cd test/conformance && go test -count=1 -timeout 300m -run TestOrder ./languages -args -messages=100000

## bench: idle and loaded clusters, and faults, into docs/benchmarks.md (20 minutes); ROUNDS=5 for medians
bench: build
	@scripts/bench.sh

## profile: record the CPU profile by which the program for users is compiled, cmd/busbar/default.pgo (two minutes)
profile: build
	@scripts/profile.sh

## comparison: try what users of other brokers look for, into docs/comparison.md (ten minutes)
comparison: build
	@scripts/comparison.sh

## pictures: take the pictures of docs/console.md anew
pictures: build
	@cd test && go test -count=1 -timeout 10m -run TestPagesAreAccessible ./console -args -pictures

## growth: one node with 10 million messages, a million sessions, a thousand entities (an hour, 30 GB)
growth: build
	@for m in backlog sessions wide; do echo "## $$m"; nice scripts/growth.sh $$m; done
	@echo "## catchup"; nice scripts/endurance.sh catchup

## steady: three nodes under an even load for an hour: memory, files, goroutines and disk stay
steady: build
	@scripts/endurance.sh steady

## microbench: every benchmark of the packages, with allocations
microbench:
	@go test -run '^$$' -bench . -benchmem -benchtime 1s ./...

## cover: statement coverage of the tests in cover.html
cover:
	@go test -short -coverpkg=./... -coverprofile=cover.out ./...
	@profile=$$(mktemp) && trap 'rm -f "$$profile"' EXIT && cd test && \
		go test -short -coverpkg=$(MODULE)/fsm/... -coverprofile="$$profile" ./model && tail -n +2 "$$profile" >>../cover.out
	@go tool cover -html=cover.out -o cover.html && go tool cover -func=cover.out | tail -n 1

## cover-fsm: the state machine's tests and the model reach 95 of 100 of its statements
cover-fsm:
	@cd test && go test -short -coverpkg=$(MODULE)/fsm -coverprofile=../cover.out $(MODULE)/fsm ./model >/dev/null
	@go tool cover -func=cover.out | awk '/^total/ { print; exit $$3 + 0 < 95 }'

## coverage: which tests hold which statement (docs/coverage.md) and which row of the mission (docs/mission.md)
coverage:
	@go run ./scripts/coverage

## all: what continuous integration runs
all: verify test conformance

## clean: remove what make built
clean:
	@rm -rf bin dist cover.out cover.html

## help: list every target with what it does
help:
	@sed -n 's/^## \([a-z-]*\): \(.*\)/\1\t\2/p' $(firstword $(MAKEFILE_LIST)) | sort | awk -F'\t' '{ printf "%-18s %s\n", $$1, $$2 }'
