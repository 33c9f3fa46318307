.DEFAULT_GOAL := help
BIN := .venv/bin
PY := $(BIN)/python

.venv/ready: requirements-dev.lock pyproject.toml
	@echo "==> making .venv (Python packages, pinned by hash)"
	python3 -m venv .venv
	$(BIN)/pip install --quiet --require-hashes -r requirements-dev.lock
	$(BIN)/pip install --quiet --no-deps --no-build-isolation --editable .
	touch $@

.PHONY: style check test test-full test-others test-pair test-three demo demo-down up down bench bench-check image wheels one-file sbom release install.yaml format lock help

style: .venv/ready  ## Format, lint, types, layers
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(PY) -m tests.budget

check: style  ## What a commit must pass: style, and the fast tests
	$(BIN)/pytest -q -n 2 -m "not cluster and not journey"

test: .venv/ready  ## All tests, those on real clusters beside the others
	$(PY) -m sandbox prepare
	@rm -rf .shown
	@$(MAKE) --no-print-directory -j 3 test-three test-pair test-others; status=$$?; \
	$(PY) -m tests.shown .shown/others.json .shown/pair.json .shown/three.json && exit $$status

test-full: .venv/ready  ## All tests at full size, for many hours: before a release
	PYLIQO_FULL=1 $(MAKE) --no-print-directory test BOUNDED=

# What does not end is interrupted, and shows what failed and where it was.
BOUNDED := timeout --signal=INT --kill-after=120 4800
test-others: .venv/ready  # fast ones, and those on API servers
	$(BOUNDED) $(BIN)/pytest -n 3 --dist loadfile --no-loadscope-reorder -m "not journey" --durations=25 --shown=.shown/others.json

# Journeys mostly wait: for pods, leases, heartbeats. Those of three clusters have clusters of their own meanwhile.
# Where clusters are broken each of a hundred journeys would wait for five minutes: five say why.
test-pair: MARKS := journey and not three
test-three: MARKS := journey and three
test-three: export PYLIQO_SANDBOX := .sandbox-three
test-pair test-three: test-%: .venv/ready
	@echo "==> what these journeys say is in .$*.log, and here when they are over"
	@$(BOUNDED) $(BIN)/pytest -m "$(MARKS)" --maxfail=5 --durations=25 --shown=.shown/$*.json > .$*.log 2>&1; status=$$?; cat .$*.log; exit $$status

demo: .venv/ready  ## The main job, told step by step on two real clusters (KEEP=1 leaves them running)
	$(PY) -m sandbox demo $(if $(KEEP),--keep) $(if $(PICTURE),--picture=$(PICTURE))

demo-down: down  ## End what `make demo KEEP=1` left running

up: .venv/ready  ## Start the clusters rome and milan with pyliqo installed
	$(PY) -m sandbox up --install

down: .venv/ready  ## Stop the clusters of this checkout and remove all they made
	$(PY) -m sandbox down
	PYLIQO_SANDBOX=.sandbox-three $(PY) -m sandbox down

bench: .venv/ready  ## Measure against the least that any system can do (ARGS="burst --sizes 100,1000")
	$(PY) -m bench $(ARGS)

bench-check: .venv/ready  ## Fail if a process of ours asks the API servers for more than it did
	$(PY) -m bench check

install.yaml: .venv/ready  ## Build one file of all that an administrator applies
	$$($(PY) -c 'from sandbox import binaries; print(binaries.kubectl())') kustomize manifests > $@

PYTHON_OF_IMAGE := 3.13
PLATFORMS := linux/$(patsubst x86_64,amd64,$(patsubst aarch64,arm64,$(shell uname -m)))
comma := ,
ARCHES = $(subst linux/,,$(subst $(comma), ,$(PLATFORMS)))
machine = $(patsubst amd64,x86_64,$(patsubst arm64,aarch64,$(1)))
WHEEL_TAGS := manylinux_2_34 manylinux_2_28 manylinux_2_17 manylinux2014
wheels: .venv/ready  ## Fetch and make the wheels that the image is built of (the only step with a network)
	rm -rf wheels build
	$(foreach arch,$(ARCHES),$(PY) -m pip download --quiet --no-deps --only-binary=:all: --require-hashes \
	  --python-version=$(PYTHON_OF_IMAGE) $(WHEEL_TAGS:%=--platform=%_$(call machine,$(arch))) \
	  -r requirements.lock -d wheels/dependencies/$(arch) && )true
	SOURCE_DATE_EPOCH=315532800 $(PY) -m pip wheel --quiet --no-deps --no-index --no-build-isolation -w wheels/pyliqo .

ONE_FILE := dist/liqoctl
one-file: .venv/ready  ## Build liqoctl as one file, for this platform and the Python of .venv (ONE_FILE=dist/liqoctl)
	rm -rf build
	$(PY) -m pip install --quiet --no-compile --no-deps --only-binary=:all: --require-hashes --target build/site -r requirements.lock
	$(PY) -m pip install --quiet --no-compile --no-deps --no-build-isolation --target build/site .
	mkdir -p $(dir $(ONE_FILE))
	$(BIN)/shiv --site-packages build/site --entry-point liqoctl.__main__:main --python '/usr/bin/env python3' \
	  --reproducible --compressed --output-file $(ONE_FILE)

sbom: .venv/ready  ## Name in dist/ all packages of the image and of liqoctl (CycloneDX)
	mkdir -p dist
	$(BIN)/cyclonedx-py requirements --output-reproducible --pyproject pyproject.toml -o dist/sbom.cdx.json requirements.lock

release: one-file install.yaml sbom  ## Make in dist/ what is released besides the image; KEY=key.pem signs the checksums
	cp install.yaml requirements.lock dist/
	tar --create --gzip --sort=name --mtime=@0 --owner=0 --group=0 --file dist/pyliqo-chart.tgz -C charts pyliqo
	cd dist && rm -f SHA256SUMS* && sha256sum * > SHA256SUMS
	$(if $(KEY),openssl dgst -sha256 -sign $(KEY) -out dist/SHA256SUMS.sig dist/SHA256SUMS)

IMAGE := pyliqo:0.1.0
BUILDER := $(shell command -v podman || command -v docker || command -v buildah)
# No time of its own in the image, so that two builds have one digest; docker sets it by BuildKit.
ALIKE := $(if $(findstring docker,$(BUILDER)),--build-arg SOURCE_DATE_EPOCH=0,--timestamp=0)
# Of several platforms podman and buildah make a manifest list, docker an image index.
NAMED = $(if $(findstring docker,$(BUILDER)),--tag,$(if $(findstring $(comma),$(PLATFORMS)),--manifest,--tag))
image: wheels  ## Build the image (IMAGE=registry.example/pyliqo:0.1.0, PLATFORMS=linux/amd64,linux/arm64, BUILDER=, BASE=)
	@test -n "$(BUILDER)" || { echo "make image needs podman, docker or buildah: install one, or name it by BUILDER="; exit 1; }
	$(if $(findstring manifest,$(NAMED)),-$(BUILDER) manifest rm $(IMAGE) 2> /dev/null)
	$(BUILDER) build $(ALIKE) --platform=$(PLATFORMS) $(if $(BASE),--build-arg BASE=$(BASE)) \
	  -f Containerfile $(NAMED)=$(IMAGE) .

format: .venv/ready  ## Format the source and mend what the linter can mend
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

lock: .venv/ready  ## Pin the dependencies anew, by hash (needs pip-tools in PATH)
	pip-compile -q --generate-hashes --no-emit-index-url --no-emit-find-links --no-emit-trusted-host \
	  --no-header --allow-unsafe --strip-extras -o requirements.lock pyproject.toml
	pip-compile -q --generate-hashes --no-emit-index-url --no-emit-find-links --no-emit-trusted-host \
	  --no-header --allow-unsafe --strip-extras --extra dev -o requirements-dev.lock pyproject.toml

help:  ## This list
	@awk -F ':.*## ' '/^[a-z.-]+:.*## / {printf "  make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
