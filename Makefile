# Every target prepares its own tools: a clone and Python 3.11 or newer are enough (for gpu, also a
# PyTorch that finds the GPU).

PYTHON ?= python3
BIN := .venv/bin
SET_UP := .venv/set-up
PEERS := transformers joeynmt ctranslate2
GPU_PYTHON ?= python3
GPU_PACKAGES := .benchmark/gpu

help:  ## show this list
	@grep -E '^[a-z-]+:.*## ' $(firstword $(MAKEFILE_LIST)) | sed -E 's/:.*## /\t/' | sort | \
		while IFS='	' read -r target what; do printf '  make %-11s %s\n' "$$target" "$$what"; done

demo: $(SET_UP)  ## learn to translate from the built-in corpus, on this machine, in minutes
	$(BIN)/regard demo

test: $(SET_UP)  ## run every test
	@# If PYTHONDONTWRITEBYTECODE is empty, the many processes of the tests share compiled modules.
	@# There is one process more than cores, because tests wait for a browser and for other programs.
	PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 \
		PYTEST_XDIST_AUTO_NUM_WORKERS=$$(($$(getconf _NPROCESSORS_ONLN) + 1)) \
		$(BIN)/pytest -n auto --maxprocesses 8 --dist worksteal

check: $(SET_UP)  ## formatting, lint, types and the direction of imports
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(SET_UP)  ## format the code, and mend what lint can mend
	$(BIN)/ruff format
	$(BIN)/ruff check --fix

setup: $(SET_UP)  ## install regard and its pinned dependencies into .venv, compile its loops

bench-setup: $(SET_UP) $(PEERS:%=.benchmark/%/set-up)  ## install what benchmarks/ compares with

dist: build/tools/set-up  ## build a wheel and a source archive in dist/
	rm -rf dist
	PIP_CONSTRAINT=constraints.txt build/tools/bin/python -m build --outdir dist
	@echo 'Install it with: pip install --constraint constraints.txt "$$(ls dist/*.whl)[serve]"'

dist-test: dist  ## install the wheel into empty environments, with each extra, and try it
	$(PYTHON) packaging/try_wheel.py dist/*.whl

gpu: $(GPU_PACKAGES)/set-up  ## check and measure this machine's GPU, by a Python (GPU_PYTHON) whose PyTorch finds it
	$(GPU_PYTHON) benchmarks/gpu.py --packages $(GPU_PACKAGES) $(GPU_OPTIONS)

# --no-deps: the PyTorch and numpy that are installed already stay as they are.
$(GPU_PACKAGES)/set-up: benchmarks/peers/requirements-gpu.txt constraints.txt
	@echo "Installing into $(@D)." >&2
	$(GPU_PYTHON) -m pip install --quiet --upgrade --no-deps --target $(@D) --requirement $< \
		--constraint constraints.txt
	@touch $@

clean:  ## remove .venv and every cache
	rm -rf .venv .benchmark build dist .pytest_cache .mypy_cache .ruff_cache \
		.import_linter_cache .hypothesis
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +

$(SET_UP): pyproject.toml constraints.txt | .venv/bin/python
	@echo "Installing into .venv, once; PyTorch is most of the download." >&2
	$(BIN)/python -m pip install --quiet --no-compile --editable '.[dev]' --constraint constraints.txt
	@# Compile the packages' Python and, at the same time, the loops (without Numba there are none),
	@# so that the first command need not compile them.
	@$(BIN)/python -m compileall -q .venv/lib >/dev/null 2>&1 & \
	$(BIN)/python -c 'from regard.arithmetic.few_rows import compile_loops; compile_loops()' 2>/dev/null || true; \
	wait
	@touch $@

build/tools/set-up: constraints.txt | .venv/bin/python
	.venv/bin/python -m venv --clear $(@D)
	$(@D)/bin/pip install --quiet build --constraint $<
	@touch $@

# Each peer has an environment of its own: versions that one pins would break another.
.benchmark/%/set-up: benchmarks/peers/requirements-%.txt | .venv/bin/python
	@echo "Installing into $(@D)." >&2
	$(BIN)/python -m venv --clear $(@D)
	$(@D)/bin/pip install --quiet --requirement $<
	@touch $@

# Debian has venv in a package of its own, so Python and venv are checked before anything is made.
.venv/bin/python:
	@command -v $(PYTHON) >/dev/null || { \
		echo "regard needs Python 3.11 or newer, and there is no $(PYTHON): type" \
			"'sudo apt-get install python3 python3-venv'." >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "regard needs Python 3.11 or newer, and $(PYTHON) is older: type" \
			"'make PYTHON=python3.11' with the newer one that you have." >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
		echo "$(PYTHON) cannot make a virtual environment: type" \
			"'sudo apt-get install python3-venv'." >&2; exit 1; }
	$(PYTHON) -m venv .venv

.PHONY: help demo test check format setup bench-setup dist dist-test gpu clean
