# The commands of the README. Each sets up what it needs in .venv by itself.
VENV := .venv
BIN := $(VENV)/bin
PYTEST := $(BIN)/python -m pytest
STATE ?= $(CURDIR)/build/demo
C_SOURCES := $(shell find examples firmware -name '*.[ch]' -o -name '*.[ch]pp' 2>/dev/null | sort)

.PHONY: venv demo test chaos load powercut kill fuzz bench lint format examples clean

venv: $(VENV)/.test

$(VENV)/.demo: pyproject.toml scripts/venv.sh
	@scripts/venv.sh demo
	@touch $@

$(VENV)/.test: pyproject.toml scripts/venv.sh
	@scripts/venv.sh demo test
	@touch $@ $(VENV)/.demo

demo: $(VENV)/.demo
	@$(BIN)/python examples/demo.py --state $(STATE) $(if $(KEEP),--keep)

test: $(VENV)/.test
	$(PYTEST) $(ARGS)

# More of what the tests do for some seconds only.
chaos: $(VENV)/.test
	KUBE32_CHAOS_S=$(or $(SECONDS),180) $(PYTEST) tests/e2e/test_chaos.py -s

load: $(VENV)/.test
	KUBE32_LOAD_SECONDS=$(or $(SECONDS),60) $(PYTEST) tests/e2e/test_load.py

powercut: $(VENV)/.test
	KUBE32_POWERCUT_POINTS=$(or $(N),1000000) KUBE32_POWERCUT_SEED=$(or $(SEED),$(shell date +%s)) \
		$(PYTEST) tests/powercut -s

kill: $(VENV)/.test
	KUBE32_KILLS=$(or $(N),500) KUBE32_KILL_SEED=$(or $(SEED),$(shell date +%s)) $(PYTEST) tests/e2e/test_journal_kill.py -s

fuzz: $(VENV)/.test
	KUBE32_FUZZ_EXAMPLES=$(or $(N),20000) $(PYTEST) tests/unit/formats/test_k32l.py

bench: $(VENV)/.test
	@$(BIN)/python -m bench $(ARGS)

lint: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(if $(C_SOURCES),$(BIN)/clang-format --dry-run -Werror $(C_SOURCES))

format: $(VENV)/.test
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(if $(C_SOURCES),$(BIN)/clang-format -i $(C_SOURCES))

# Compiles the pods of examples/ with clang or ziglang, whichever is there.
examples: $(VENV)/.test
	$(BIN)/python examples/build.py

clean:
	rm -rf build $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis *.egg-info host/*.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
