# laggard: every target that a person needs. `make help` lists them.
SHELL := /bin/bash
GO ?= go
MODULE := github.com/laggard-dev/laggard
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
LDFLAGS := -s -w -X main.version=$(VERSION)

# Packages that run under the race detector: their own code starts goroutines or takes a lock, or their tests hand one
# object to several. In the others it finds nothing, and takes three to nine times as long. TestOneGoroutine holds that
# what starts or locks is here, in FEW_MEET or in PROCESSES.
RACED := ageing analyzer/health analyzer/watch/depth benchmarks/fleet collector/drain collector/recorder collector/ring collector/switchboard \
	collector/switchboard/endpoint collector/trace schemas/clickhouse/chtest schemas/clickhouse/native schemas/parquet writer/clickhouse \
	writer/intake writer/ledger writer/ship writer/ship/shiptest writer/tail

# Packages whose long tests work in one goroutine: only those tests run under the race detector in which several meet.
FEW_MEET := . analyzer/detect analyzer/feed analyzer/source analyzer/watch analyzer/whatif benchmarks/eval writer/profiles writer/segment
MEETING := Build_|Columns_|Transfers_Members|SideBySide|Parquet|Files|InOrder|ThresholdsOfRunningJob|ChangesAreSentOnce|Traces/^AR-1$$|Parity_ClickHouse|Scripts/torn|Scripts/garbage|Scripts/sources|KinetoOfEightRanks|DamagedProfiles|MixedFormats|SwappedWhileOpening|AtOnce

# Tests that say nothing under the race detector: memory with the detector's own, and many rows of what others there have few of.
NOT_RACED := MemoryCeiling|TurnsChangeNothing|MillionRows

# Whole processes: no package for the race detector, which would see only the test. One package at a time: the others'
# would slow ranks that are judged.
PROCESSES := benchmarks/e2e deploy/examples deploy/examples/dataparallel

# The linters, pinned: a new version's findings come when somebody asks for them. Go keeps the built tools in its cache.
GOLANGCI := github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2
DEADCODE := golang.org/x/tools/cmd/deadcode@v0.52.0

# A commit that `make house` prints beside the tree.
BASE ?=

.DEFAULT_GOAL := help
.PHONY: help build run test packages kubernetes trainers trainers-all cuda cluster profiles profiles-all profiles-bench parts race short lint house bench fleet-bench eval grafana soak-kill soak-power soak-chaos soak-lines soak-faults soak-calls soak-jobs soak-verdicts soak-costs soak-cluster soak-memory soak-nfs soak-arm wheels dist clean

help: ## list the targets
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build: ## build ./laggard (needs Go only)
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags '$(LDFLAGS)' -o laggard .

run: build ## the whole pipeline here: real workers, one slowed, verdict and report
	./laggard demo

parts: ## install the real components that the tests talk to
	@.ci/parts

# With the checkout's path in what is compiled, each clone would compile all packages again that the cache has from another. As
# another's test binaries are the same, then, -count=1 keeps their results out.
test packages: export GOFLAGS := $(shell $(GO) env GOFLAGS) -trimpath

test: parts ## everything, against the real components, with -race where goroutines meet and load is not the point
	@built=$$(mktemp -d); trap 'rm -rf "$$built"' EXIT; chmod 755 "$$built"; $(GO) build -o "$$built/laggard" . || exit; \
	export LAGGARD_PROGRAM="$$built/laggard"; nice -n 10 $(MAKE) --no-print-directory packages & packages=$$!; trap 'kill $$packages' INT TERM; \
	$(GO) test -count=1 -p 1 -parallel 8 -timeout 40m $(PROCESSES:%=./%); processes=$$?; wait $$packages && exit $$processes

packages: # the tests that work in one process: they take the time that those of whole processes, of which some judge slow ranks, wait
	LAGGARD_TEST_MODEL=3 $(GO) test -count=1 -race -skip '$(NOT_RACED)' -p 3 -timeout 30m $(RACED:%=./%)
	$(GO) test -count=1 -race -p 3 -timeout 10m -run '$(MEETING)' $(FEW_MEET:%=./%)
	GOGC=400 $(GO) test -count=1 -p 3 -timeout 20m $$($(GO) list ./... | grep -v -x -F $(PROCESSES:%=-e $(MODULE)/%) $(RACED:%=-e $(MODULE)/%))
	$(GO) test -count=1 -timeout 10m -run '$(NOT_RACED)' ./writer/intake ./writer/ship/shiptest

kubernetes: ## the manifests and the watcher on a real API server and etcd (built once, in the user's cache)
	@GO=$(GO) .ci/parts kubernetes
	cd deploy/kubernetes/apiserver && $(GO) test -vet=off -count=1 -timeout 20m ./... # make lint vets it: that takes all of Kubernetes along

profiles: parts ## verdicts from PyTorch's own profiler beside those of the recorder, of one run each
	LAGGARD_PROFILES=short $(GO) test -count=1 -v -timeout 20m -run TestProfiles ./deploy/examples

profiles-all: parts ## the same on a current PyTorch (5 GB from PyPI, once), 20 jobs: compute, link and healthy, 4 to 8 ranks; the table goes to bin/profiles.md
	@set -e -o pipefail; venv=$$(.ci/parts trainers | tail -n 1); mkdir -p bin; rm -f bin/profiles.md; \
	LAGGARD_PROFILES=all LAGGARD_PROFILES_PYTHON="$$venv/bin/python" LAGGARD_PROFILES_TABLE="$(CURDIR)/bin/profiles.md" \
		$(GO) test -count=1 -v -timeout 6h -run TestProfiles ./deploy/examples; cat bin/profiles.md

profiles-bench: ## a verdict from traces beside HolisticTraceAnalysis (from PyPI, once) on the same folders, and a trace of 500 MB
	$(GO) test -timeout 1h -run '^$$' -bench . -benchtime 3x -v ./benchmarks/traces

# Servers have their folders in memory where 8 GiB of it are free: ext4 looks through all inodes that
# neighbours freed for each file of a part.
IN_MEMORY = TMPDIR=$$([ "$$(df -k --output=avail /dev/shm 2>/dev/null | tail -n 1)" -gt 8000000 ] 2>/dev/null && echo /dev/shm || echo "$${TMPDIR:-/tmp}")

cluster: ## a real ClickHouse cluster, 2 shards × 2 replicas with ZooKeeper, through kills, lags, losses and restarts
	@.ci/parts cluster
	$(GO) vet -tags cluster ./benchmarks/cluster
	$(IN_MEMORY) $(GO) test -tags cluster -count=1 -timeout 20m ./benchmarks/cluster

# What of collector/python/trainers runs, which older versions of PyTorch, and what else is fetched. The jobs that are judged
# come last and one by one: neighbours would slow ranks, too.
TESTS ?= test_*.py
OLDER ?=
MORE ?=
# Whose cost a step is measured, and the page that takes it where the tables are to be brought up to the run.
COST ?= ddp
PAGE = $(if $(TABLE),--page ../../../benchmarks/results/trainers.md)
FAMILIES = ddp fsdp1 fsdp2 dtensor pipelining compile saves zero-1 zero-2 zero-3 megatron lightning transformers accelerate mindspore

trainers: ## the recorder in real PyTorch, DeepSpeed, Megatron, Lightning, Hugging Face, MindSpore and JAX jobs, and what it costs a step (7.6 GB from PyPI, once)
	@set -e -o pipefail; declare -A venv; for each in "" datasets mindspore jax $(MORE) $(OLDER:%=torch-%); do \
		venv[$${each:-torch}]=$$(.ci/parts trainers $$each | tail -n 1)/bin/python3; done; cd collector/python/trainers; \
	for each in "$${venv[@]}"; do PYTHONPATH=.. "$$each" -B -m laggard build; done; \
	seen=$$(mktemp -d); trap 'rm -rf "$$seen"' EXIT; (cd ../../.. && $(GO) build -o "$$seen/laggard" .); \
	tests=$$(for test in $(TESTS); do each=$${test#test_}; each=$${each%.py}; \
			case $$each in older | cuda) continue ;; dali | culprits_more) [ "$(MORE)" ] || continue ;; esac; \
			echo "$${venv[$${each#culprits_}]-$${venv[torch]}} -B -m unittest -v $${test%.py}"; done; \
		for each in $(OLDER); do for test in test_older test_culprits; do \
			echo "LAGGARD_TRAINERS_TORCH=$$each $${venv[torch-$$each]} -B -m unittest -v $$test"; done; done); \
	export LAGGARD=$$seen/laggard LAGGARD_TRAINERS_SEEN=$$seen; \
	sed /culprits/d <<<"$$tests" | xargs -r -P 3 -L 1 env; sed '/culprits/!d' <<<"$$tests" | xargs -r -L 1 env; \
	python3 -B table.py "$$seen" ../../../deploy/docs/trainers.md $(TABLE); \
	for each in $(COST); do PYTHONPATH=.. "$${venv[$$each]-$${venv[torch]}}" -B cost.py $(PAGE) $$each; done; \
	for each in $(OLDER); do PYTHONPATH=.. "$${venv[torch-$$each]}" -B cost.py $(PAGE) ddp; done

trainers-all: ## the same, DALI, more jobs that are judged, what each family costs, and all under PyTorch 2.8, too, DDP under Debian's 1.13 (7 GB more)
	$(MAKE) trainers OLDER="2.8 1.13" MORE=dali COST="$(FAMILIES)"

cuda: ## the recorder on a real CUDA device, with the PyTorch of this machine's python3, and what it costs a step there
	@set -e; seen=$$(mktemp -d); trap 'rm -rf "$$seen"' EXIT; $(GO) build -o "$$seen/laggard" .; export LAGGARD=$$seen/laggard; \
	cd collector/python/trainers; PYTHONPATH=.. python3 -B -m laggard build; python3 -B -m unittest -v test_cuda; python3 -B cuda_cost.py

short: ## the tests without -race
	$(GO) test -timeout 20m ./...

race: test ## the same as test

lint: ## gofmt, vet, golangci-lint, staticcheck, deadcode; the first run builds the tools
	@out=$$(gofmt -l $$(git ls-files '*.go')); if [ -n "$$out" ]; then echo "gofmt would change:"; echo "$$out"; exit 1; fi
	$(GO) vet ./...
	cd deploy/kubernetes/apiserver && $(GO) vet ./...
	$(GO) run $(GOLANGCI) run --build-tags cluster ./...
	$(GO) run $(STATICCHECK) ./...
	@out=$$($(GO) run $(DEADCODE) -test -tags cluster ./...) || exit 1; if [ -n "$$out" ]; then echo "nothing reaches:"; echo "$$out"; exit 1; fi

house: ## lines, packages, types, functions and the three ways; BASE=<commit> prints that beside
	@$(GO) run ./benchmarks/house -base '$(BASE)'

bench: ## the benchmarks, each against its reference in one run
	@.ci/parts bench
	$(GO) test -timeout 1h -run '^$$' -bench . -benchmem ./schemas/... ./collector/... ./writer/... ./ageing/... ./analyzer/... ./benchmarks/...

fleet-bench: ## 1,000 shippers beside one server, the read of 10,000 ranks from ClickHouse, and a watcher over 1,000 jobs: a quarter of an hour
	@.ci/parts cluster
	$(IN_MEMORY) $(GO) test -timeout 1h -run '^$$' -bench 'Shippers|ClickHouse|Watch' -benchtime 1x -v ./benchmarks/fleet

eval: ## the detection suite: 22 scenarios, 31 families of jobs beside the detector before, 30,000 healthy node-hours
	$(GO) run ./benchmarks/eval

grafana: ## the dashboards' queries over 1,024 ranks × 2,000 steps, each with its time
	LAGGARD_GRAFANA=full $(GO) test -count=1 -v -run TestEveryQueryRuns ./deploy/grafana

soak-kill: ## 10,000 SIGKILLs of trainers and of the agent, the long form of what make test does
	LAGGARD_KILLS=10000 $(GO) test -count=1 -v -timeout 6h -run Killed ./collector/native ./collector/recorder
	LAGGARD_KILLS=1000 $(GO) test -count=1 -v -timeout 6h -run 'KilledAgent|KilledAtEverySystemCall' ./collector/drain ./benchmarks/e2e
	LAGGARD_TEST_KILLS=10000 $(GO) test -count=1 -v -timeout 6h -run 'TestPython/kill' ./collector/python

soak-power: ## 1,000 images of what a loss of power leaves of the agent's files
	LAGGARD_IMAGES=1000 $(GO) test -count=1 -v -timeout 6h -run TestPowerLoss ./benchmarks/e2e

soak-chaos: ## an hour of the agent and ClickHouse, killed and cut off by chance; audit at the end
	LAGGARD_CHAOS_SECONDS=3600 $(GO) test -count=1 -v -timeout 2h -run 'TestChaos$$' ./benchmarks/e2e

soak-lines: ## the scanner beside encoding/json on a hundred million lines
	LAGGARD_LINES=100000000 $(GO) test -count=1 -v -timeout 6h -run DiffersNever ./schemas/record

soak-faults: ## the store's and the tail's faults by the hundred and the thousand
	LAGGARD_TEST_KILLS=100 LAGGARD_TEST_CUTS=1000 LAGGARD_TEST_POISON_ROWS=1000000 $(GO) test -count=1 -v -timeout 2h ./writer/ship/shiptest
	LAGGARD_TEST_REUSES=100000 LAGGARD_TEST_PREFIX=1048576 $(GO) test -count=1 -v -timeout 1h ./writer/tail
	LAGGARD_TEST_MODEL=10000 $(GO) test -count=1 -v -timeout 6h -run TestModel ./writer/intake

soak-calls: ## the agent with system calls that fail: 300 places, with the store and without
	LAGGARD_FAULTS=300 $(GO) test -count=1 -v -timeout 3h -run TestFailingSystemCalls ./benchmarks/e2e

soak-jobs: ## the PyTorch example with each fault: compute, dataloader, checkpoint, link; and healthy
	LAGGARD_JOBS=all $(GO) test -count=1 -v -timeout 1h -run 'TestPyTorch' ./deploy/examples

soak-cluster: ## the same with 50 kills of a replica in the middle of an insert, and a minute's wait for a second copy
	@.ci/parts cluster
	$(IN_MEMORY) LAGGARD_CLUSTER_KILLS=50 LAGGARD_CLUSTER_COPIES=60s $(GO) test -tags cluster -count=1 -v -timeout 3h ./benchmarks/cluster

soak-verdicts: ## verdicts on all seeds: jobs with each fault, healthy ones, costs, and what a watcher keeps
	LAGGARD_SEEDS=all $(GO) test -count=1 -v -timeout 1h ./analyzer/detect ./analyzer/watch ./benchmarks/eval
	LAGGARD_SEEDS=all $(GO) test -count=1 -v -timeout 1h -run TestWatch_NamesWithinTenSteps ./benchmarks/e2e

soak-costs: ## the cost of a fault by rows and by raw ranges: 32 ranks, too, and four jobs more
	LAGGARD_COSTS=all $(GO) test -count=1 -v -timeout 1h -run TestCost_ReplayOfRangesAgrees ./benchmarks/e2e

soak-memory: ## a follower beside a server that is stopped, for ten minutes, and .zst that inflate to 1 GiB: memory stays under its ceiling
	LAGGARD_INFLATED_MIB=1024 $(GO) test -count=1 -v -timeout 1h -run TestMemoryOnHostileFiles ./benchmarks/e2e
	LAGGARD_CEILING_SECONDS=600 $(GO) test -count=1 -v -timeout 1h -run TestMemoryCeiling ./writer/intake

soak-nfs: ## the follower over loopback NFS (in a virtual machine of its own), the server away for a minute
	GO=$(GO) .ci/nfs 60s

soak-arm: ## the C and Go recorders on arm64, emulated; needs root
	GO=$(GO) .ci/arm

wheels: ## the Python recorder as wheels, in dist/: one for any Python, one with the C extension for this python3
	python3 -B collector/python/wheels.py dist

dist: ## static binaries for amd64 and arm64, bill of materials and checksums, in dist/
	@mkdir -p dist
	for arch in amd64 arm64; do \
		CGO_ENABLED=0 GOOS=linux GOARCH=$$arch $(GO) build -trimpath -ldflags '$(LDFLAGS)' -o dist/laggard-linux-$$arch . || exit 1; \
	done
	$(GO) run ./deploy/sbom -o dist/laggard.cdx.json dist/laggard-linux-amd64 dist/laggard-linux-arm64
	cd dist && sha256sum laggard-linux-* laggard.cdx.json > SHA256SUMS

clean: ## remove what the build made
	rm -rf laggard dist bin demo-out
