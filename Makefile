# The two commands of the README are `make demo` and `make test`. Each makes .venv on first use
# and installs nothing on the second.
PYTHON ?= python3
BIN := .venv/bin
DEMO := demo
DATA := ../shared/data

.PHONY: help install demo test check bench chaos results clean

help:           ## what can be made
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*##/\t/'

.venv/.installed: setup.py constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt torch
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[all,dev]'
	touch $@

install: .venv/.installed   ## make .venv with everything in it

demo: .venv/.installed      ## the whole walk in a few minutes, on text that we generate
	$(BIN)/python -m data_tools.generate_demo --output $(DEMO)/text --seed 0 --overwrite
	$(BIN)/python -m data_tools.build_corpus --tokenizer whitespace --overwrite \
		--input $(DEMO)/text/train.txt --heldout $(DEMO)/text/heldout.txt --output $(DEMO)/corpus
	PATH="$(CURDIR)/$(BIN):$$PATH" deepspeed --quiet --num_gpus 2 launch/pretrain.py \
		--config configs/demo.json data.corpus=$(DEMO)/corpus train.output_dir=$(DEMO)/run
	$(BIN)/python -m downstream.classify --model $(DEMO)/run/best --train $(DEMO)/text/train.csv \
		--test $(DEMO)/text/test.csv --output $(DEMO)/classifier --overwrite --tokenized \
		--mix trainable,frozen,learned,top >$(DEMO)/classifier.log
	$(BIN)/python -m downstream.baselines --model $(DEMO)/run/best --which tfidf,untrained \
		--train $(DEMO)/text/train.csv --test $(DEMO)/text/test.csv --tokenized \
		--output $(DEMO)/baselines --overwrite >$(DEMO)/baselines.log
	$(BIN)/python -m experiments.demo_summary $(DEMO)

test: .venv/.installed      ## every test
	$(BIN)/python -m pytest -n 2 --dist loadfile

check: .venv/.installed     ## ruff, mypy and the fast tests
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -m 'not slow and not chaos' -n 2

bench: .venv/.installed     ## every benchmark, and docs/performance.md; half an hour, on a quiet machine
	$(BIN)/python benchmarks/report.py

chaos: .venv/.installed     ## kill, fill, flip and fuzz it, and docs/reliability.md; under an hour
	$(BIN)/python -m tests.chaos

results: .venv/.installed   ## pretrain on news and films, classify, and docs/results.md; some hours, DATA=DIR
	$(BIN)/python -m experiments.results --data $(DATA)

clean:                      ## remove what demo and tests made
	rm -rf $(DEMO) runs .pytest_cache .mypy_cache .ruff_cache .hypothesis
