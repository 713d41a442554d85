# make train   set up, then train PDERL on Swimmer-v5 for a few minutes, with a learning curve at the end
# make test    set up, then run every test
# make lint    set up, then run the linter, the formatter's check and the type checker
PYTHON ?= python3
BIN := .venv/bin

.PHONY: train test setup lint

train: setup
	$(BIN)/genepool train pderl Swimmer-v5 --frames 55e3

test: setup
	$(BIN)/python -m pytest --numprocesses 2 --dist loadfile

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyrefly check

setup: .venv/ready

.venv/ready: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit("genepool needs Python 3.11 or newer: make PYTHON=python3.12" if sys.version_info < (3, 11) else 0)'
	@echo "setting up .venv: two minutes or so, 2.0 GB"
	@$(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install -qq --disable-pip-version-check --constraint constraints.txt \
		--editable '.[envpool,analysis,film,cluster,evosax,tensorboard,dev]'
	@touch $@
