# Every target creates .venv on first use and reuses it afterwards. `.dev` adds what tests need.
PYTHON ?= python3
BIN := .venv/bin
DEMO := demo
DATA := ../shared/data

# The task of the demo and the training of its heads.
DEMO_TASK := --train $(DEMO)/text/train.csv --test $(DEMO)/text/test.csv --tokenized \
	--model $(DEMO)/run/best --epochs 20 --patience 20 --learning-rate 0.01 --seeds 2 --overwrite

.PHONY: help install demo test check wheel bench gpu chaos cluster results tasks clean

help:                       ## list the targets
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):[^#]*## */\1\t/' | expand -t 12

.venv/.installed: pyproject.toml setup.py constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt torch
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[all]'
	touch $@

.venv/.dev: .venv/.installed
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[all,dev]'
	touch $@

# The packages of other systems, some of which need older versions than bilm's tests.
.venv-comparison/.installed: pyproject.toml setup.py constraints.txt experiments/comparison/requirements.txt
	$(PYTHON) -m venv .venv-comparison
	.venv-comparison/bin/pip install --quiet --disable-pip-version-check -c constraints.txt torch
	.venv-comparison/bin/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[all]'
	.venv-comparison/bin/pip install --quiet --disable-pip-version-check -r experiments/comparison/requirements.txt
	touch $@

install: .venv/.dev         ## create .venv and install all dependencies into it

demo: .venv/.installed      ## run the whole pipeline on generated text (a few minutes)
	$(BIN)/python -m data_tools.generate_demo --output $(DEMO)/text --seed 0 --overwrite
	$(BIN)/python -m data_tools.build_corpus --tokenizer whitespace --overwrite \
		--input $(DEMO)/text/train.txt --heldout $(DEMO)/text/heldout.txt --output $(DEMO)/corpus
	PATH="$(CURDIR)/$(BIN):$$PATH" deepspeed --quiet --num_gpus 2 launch/pretrain.py \
		--config configs/demo.json data.corpus=$(DEMO)/corpus train.output_dir=$(DEMO)/run
	$(BIN)/python -m downstream.classify $(DEMO_TASK) --head bilstm --encoder-dim 64 \
		--mix trainable --output $(DEMO)/classifier >$(DEMO)/classifier.log
	$(BIN)/python -m downstream.classify $(DEMO_TASK) --head mean_max --mix layer:0,trainable \
		--output $(DEMO)/pooled >$(DEMO)/pooled.log
	$(BIN)/python -m downstream.baselines $(DEMO_TASK) --head bilstm --encoder-dim 64 \
		--mix trainable --which tfidf,untrained --output $(DEMO)/baselines >$(DEMO)/baselines.log
	$(BIN)/python -m experiments.demo_summary $(DEMO)

test: .venv/.dev            ## run all tests except the chaos tests
	$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder

check: .venv/.dev           ## run ruff, mypy and the fast tests
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -m 'not slow and not chaos' -n 2

wheel: .venv/.dev           ## build dist/*.whl and install it with each extra alone (downloads packages)
	$(BIN)/pip wheel --quiet --no-deps --no-build-isolation --wheel-dir dist .
	$(BIN)/python -m tests.packaging.real_installs dist

bench: .venv/.installed     ## run all benchmarks and write docs/performance.md (30 to 60 minutes; ALLENNLP=PYTHON adds AllenNLP)
	$(BIN)/python benchmarks/report.py $(if $(ALLENNLP),--allennlp $(ALLENNLP))

gpu: .venv/.dev             ## check the GPUs of this machine and write docs/gpu.md (under 15 minutes)
	$(BIN)/python -m bilm.commands.gpu_check --golden tests/golden --output docs/gpu.md

chaos: .venv/.dev           ## inject faults and write docs/reliability.md (under an hour)
	$(BIN)/python -m tests.chaos

cluster: .venv/.dev         ## run launchers and network faults on simulated machines and write docs/cluster.md (root, under 30 minutes)
	$(BIN)/python -m tests.cluster

results: .venv/.installed .venv-comparison/.installed ## repeat docs/results.md and docs/comparison.md (hours; DATA=DIR has the texts)
	$(BIN)/python -m experiments.english_model --data $(DATA) --only-corpus
	$(BIN)/python -m experiments.results --data $(DATA)
	taskset -c 0 .venv-comparison/bin/python -m experiments.comparison --data $(DATA) \
		--work results/comparison --minutes 15 --trial-minutes 1.5

tasks: .venv/.installed     ## measure the tasks of the paper and write docs/tasks.md (hours; DATA=DIR has the data)
	$(BIN)/python -m experiments.task_table --data $(DATA)

clean:                      ## delete the output of the demo, default runs and caches
	rm -rf $(DEMO) runs build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
