"""Command lines of `bilm` that work without any extra, and those that need one."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pyarrow
import torch
import zstandard
from pyarrow import parquet

from bilm.model.language_model import BiLm
from bilm.pretrained.model_directory import PretrainedBiLm
from bilm.text.tokenizers import WhitespaceTokenizer
from downstream.classify import main as classify
from tests.bilm.small_corpus import write_corpus
from tests.conftest import GOLDEN, tiny_model_config
from tests.launch.launching import TINY

WORDS = ["the bank floods .", "the river lends .", "a bank lends .", "a river floods ."]
HEADS = "--model run --train train.csv --test test.csv --tokenized --epochs 1 --seeds 1"

WITHOUT_EXTRAS = (
    "config big",
    "config tiny.json train.seed=3",
    "evaluate --model run --corpus corpus --rows 1",
    "export run --model exported --published published",
    "convert from-published options.json weights.hdf5 converted",
    "embed --model run --input text.txt --output vectors.hdf5",
    "parity embeddings.npz",
    "data build-corpus --tokenizer whitespace --heldout 0 --workers 1 --input text.txt --output c1",
    "data build-vocab --tokenizer whitespace --workers 1 --input text.txt --output vocab.txt",
    "data build-shards --tokenizer whitespace --heldout 0 --workers 1 --input text.txt --output c2 "
    "--vocab corpus/vocab.txt --allow-unsorted-vocab",
    "data inspect corpus --verify",
    "data generate-demo --output demo --sentences 60",
    "tasks predict --classifier trained --input test.csv --output predictions.csv",
    "index --model run --text text.txt --cache indexes",
)
# By extra. The commands succeed if the extra is installed.
WITH_EXTRA = {
    "train": (
        "plan --config tiny.json",
        "pretrain --config tiny.json --dry-run",
        "pretrain --config tiny.json train.max_steps=2",
    ),
    "data": (
        "data build-corpus --heldout 0 --workers 1 --input text.txt --output c3",
        "data build-corpus --tokenizer whitespace --heldout 0 --workers 1 --input text.txt.zst "
        "--output c4",
        "data build-vocab --tokenizer sentencepiece --pieces 300 --workers 1 --input text.txt "
        "--output pieces.txt",
        "data build-shards --heldout 0 --workers 1 --input text.txt --output c5 "
        "--vocab corpus/vocab.txt --allow-unsorted-vocab",
        "embed --model run --input text.txt --tokenizer moses --output v1.hdf5",
        "embed --model run --input text.txt.zst --output v2.hdf5",
        "convert from-published options.json weights.hdf5 converted2 --tokenizer moses",
    ),
    "parquet": (
        "data build-corpus --tokenizer whitespace --heldout 0 --workers 1 --input text.parquet "
        "--output c6",
        "embed --model run --input text.parquet --output v3.hdf5",
    ),
    "downstream": (
        f"tasks classify {HEADS} --mix average --output classifier",
        f"tasks baselines {HEADS} --which tfidf,svd,skipgram --output baselines",
        f"tasks layers {HEADS} --output layers",
        f"tasks penalty {HEADS} --output penalty",
        f"tasks sample-efficiency {HEADS} --shares 1 --output sizes",
        "tasks probe --model run --train tags.conllu --test tags.conllu --output probe",
        "tasks neighbours --model run --text text.txt --word bank --output neighbours --tokenized",
        "tasks senses --model run --train senses.jsonl --test senses.jsonl --output senses",
    ),
}
# By extra. The commands also need a cluster or a hub, or run until a signal arrives, so they are
# only run without the extra.
WITH_CLUSTER = {
    "serve": ("explore --model run", "serve --model run --text text.txt"),
    "hub": ("embed --model someone/unknown --input text.txt --output v4.hdf5",),
    "dask": (
        "data build-corpus --tokenizer whitespace --heldout 0 --input text.txt --output c7 "
        "--scheduler tcp://127.0.0.1:1",
    ),
}


def write_files(directory: Path) -> None:
    """Write the files that the commands read."""
    lines = WORDS * 20
    text = "".join(f"{line}\n" for line in lines)
    (directory / "text.txt").write_text(text, encoding="utf-8")
    (directory / "text.txt.zst").write_bytes(zstandard.compress(text.encode()))
    parquet.write_table(pyarrow.table({"text": lines}), directory / "text.parquet")
    for name in ("train.csv", "test.csv"):
        with open(directory / name, "w", encoding="utf-8", newline="") as file:
            rows = [("money" if "bank" in line else "nature", line) for line in lines]
            csv.writer(file).writerows([("label", "text"), *rows])
    tags = {"floods": "VERB", "lends": "VERB", "bank": "NOUN", "river": "NOUN"}
    sentences = [
        "".join(
            f"{place}\t{word}\t{word}\t{tags.get(word, 'X')}\tX\t_\t0\t_\t_\t_\n"
            for place, word in enumerate(line.split(), start=1)
        )
        for line in lines
    ]
    (directory / "tags.conllu").write_text("\n".join(sentences) + "\n", encoding="utf-8")
    sense = {"start": 1, "end": 1, "lemma": "bank", "pos": "NOUN", "keys": ["bank%1:17:01::"]}
    sentence = {"tokens": ["the", "bank"], "instances": [sense]}
    (directory / "senses.jsonl").write_text(json.dumps(sentence) + "\n", encoding="utf-8")
    for name in ("options.json", "weights.hdf5", "embeddings.npz"):
        (directory / name).write_bytes((GOLDEN / name).read_bytes())
    words = [line.split() for line in lines]
    corpus = write_corpus(directory / "corpus", {"train": words, "heldout": words[:10]})
    torch.manual_seed(0)
    model = BiLm(tiny_model_config(), corpus.vocabulary_size)
    pretrained = PretrainedBiLm(model, corpus.vocabulary, WhitespaceTokenizer())
    pretrained.save_pretrained(directory / "run" / "best")
    tiny = json.loads(json.dumps(TINY))
    tiny["data"]["corpus"], tiny["train"]["output_dir"] = "corpus", "new"
    tiny["deepspeed"]["train_batch_size"] = 4
    (directory / "tiny.json").write_text(json.dumps(tiny), encoding="utf-8")
    tables = (f"--train={directory / 'train.csv'}", f"--test={directory / 'test.csv'}")
    heads = (f"--model={directory / 'run'}", "--mix=average", "--epochs=1", "--tokenized")
    classify([*tables, *heads, f"--output={directory / 'trained'}", f"--cache={directory}/cache"])
