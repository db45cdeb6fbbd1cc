"""A directory with small versions of all files that the documentation names.

Everything is made by the real commands from a small generated text. The configurations have the
settings of `configs/` with small sizes.
"""

from __future__ import annotations

import csv
import gzip
import io
import itertools
import json
import os
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path

from tests.conftest import GOLDEN, ROOT
from tests.docs.pages import Command

TIMEOUT_SECONDS = 240
NUM_SENTENCES = 600
# Sizes in commands that would take minutes, and the small ones that are run instead.
SMALLER = (
    (r"(data_tools\.generate_demo |bilm data generate-demo )", rf"\1--sentences {NUM_SENTENCES} "),
    (r"--vocabulary \d+", "--vocabulary 300"),
    (r"--words \d+", "--words 20000"),
    (r"train_batch_size=\d+", "train_batch_size=8"),
    (r"(--config|bilm config) (\w+)(?= |$)", r"\1 configs/\2.json"),  # the small ones in `configs`
)


def build(directory: Path) -> None:
    """Fill `directory` with texts, tables, configurations, a corpus, a run and a model."""
    for name in ("launch", "benchmarks"):
        (directory / name).symlink_to(ROOT / name)
    (directory / "tests").mkdir()
    (directory / "tests" / "golden").symlink_to(GOLDEN)
    for name in ("options.json", "weights.hdf5"):
        shutil.copy(GOLDEN / name, directory)
    (directory / "configs").mkdir()
    for path in (ROOT / "configs").glob("*.json"):
        (directory / "configs" / path.name).write_text(json.dumps(small_config(path)))
    generate = "python -m data_tools.generate_demo --output generated"
    execute(f"{generate} --sentences {NUM_SENTENCES}", directory)
    write_texts(directory)
    execute("python -m data_tools.build_corpus --input 'text/*.txt.gz' --output corpus", directory)
    execute("python launch/pretrain.py --config configs/big.json", directory)
    shutil.copytree(directory / "runs" / "big", directory / "runs" / "small")
    shutil.copytree(directory / "runs" / "big" / "best", directory / "model")


def small_config(path: Path) -> dict[str, object]:
    """Return the configuration of `path` with small sizes; all other settings stay.

    The model of english_small.json keeps its size, because pages start from its weights.
    """
    tree = json.loads(path.read_text(encoding="utf-8"))
    model, train = tree["model"], tree["train"]
    if path.stem != "english_small":
        model["characters"] |= {"embedding_dim": 4, "filters": [[1, 4], [2, 4], [3, 8]]}
        model["lstm"] |= {"dim": 16, "projection_dim": 8}
    if model["softmax"]["kind"] == "sampled":
        model["softmax"]["num_negatives"] = 20
    train |= {"max_steps": 4, "evaluation": {"every_steps": 4, "rows": 4}}
    train["checkpoints"] = {"every_steps": 4}
    tree["deepspeed"]["train_batch_size"] = 8
    return tree


def write_texts(directory: Path) -> None:
    """Write the texts, labelled tables, treebanks and word vectors of the pages."""
    (directory / "card.json").write_text(json.dumps({"license": "cc-by-4.0"}), encoding="utf-8")
    generated = directory / "generated"
    lines = (generated / "train.txt").read_text(encoding="utf-8").splitlines()
    plays = [
        f"They {verb} the play {number} times ." for number in range(20) for verb in ("see", "act")
    ]
    text = "\n".join([*lines, *plays]) + "\n"
    (directory / "text").mkdir()
    for name in ("text/news.txt.gz", "text.txt.gz", "news.txt.gz"):
        (directory / name).write_bytes(gzip.compress(text.encode()))
    for name in ("text.txt", "tokens.txt", "tokenized.txt", "documents.txt"):
        (directory / name).write_text("\n".join(lines[:20]) + "\n", encoding="utf-8")
    for split in ("train", "test"):
        with open(generated / f"{split}.csv", encoding="utf-8", newline="") as file:
            rows = list(csv.reader(file))[: NUM_SENTENCES // 2]
        with_titles = [[label, "Title", text] for label, text in rows[1:]]
        (directory / f"{split}.csv").write_text(table(rows), encoding="utf-8")
        labels = [[f"{label}|text" if len(text) % 2 else "", text] for label, text in rows[1:]]
        numbers = [[str(len(text)), text] for _, text in rows[1:]]
        for name, targets in (("labels", labels), ("numbers", numbers)):
            content = table([rows[0], *targets[:100]])
            (directory / f"{name}_{split}.csv").write_text(content, encoding="utf-8")
        (directory / f"{split}.csv.gz").write_bytes(gzip.compress(table(with_titles).encode()))
        (directory / f"{split}.conllu.gz").write_bytes(gzip.compress(treebank(lines[:60]).encode()))
    for split, part in (("train", lines[:40]), ("dev", lines[40:50]), ("test", lines[50:60])):
        (directory / f"ner_{split}.tsv").write_text(entities(part), encoding="utf-8")
        (directory / f"roles_{split}.jsonl").write_text(roles(part), encoding="utf-8")
        (directory / f"nli_{split}.jsonl.gz").write_bytes(gzip.compress(pairs(part).encode()))
        (directory / f"qa_{split}.jsonl").write_text(questions(part), encoding="utf-8")
        (directory / f"coref_{split}.jsonl").write_text(documents(part), encoding="utf-8")
    shutil.copy(directory / "qa_test.jsonl", directory / "questions.jsonl")
    for split, part in (("train", lines[:40]), ("first", lines[40:50]), ("second", lines[50:60])):
        (directory / f"senses_{split}.jsonl").write_text(senses(part), encoding="utf-8")
    shutil.copy(directory / "test.csv", directory / "texts.csv")
    words = sorted({word for line in lines for word in line.split()})
    vectors = "".join(
        f"{word} {' '.join(str((number * place) % 7 - 3) for place in range(1, 51))}\n"
        for number, word in enumerate(words, start=1)
    )
    (directory / "glove.6B.50d.txt.gz").write_bytes(gzip.compress(vectors.encode()))


def table(rows: list[list[str]]) -> str:
    """Return the rows as CSV."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()


def treebank(lines: list[str]) -> str:
    """Return the sentences in CoNLL-U; the tag of a word depends on its last letter."""
    return "".join(
        "".join(
            f"{place}\t{word}\t{word}\t{'NOUN' if word.endswith('s') else 'X'}\tX\t_\t0\t_\t_\t_\n"
            for place, word in enumerate(line.split(), start=1)
        )
        + "\n"
        for line in lines
    )


def entities(lines: list[str]) -> str:
    """Return the sentences in columns; words that end with s are names."""
    return "\n".join(
        "".join(f"{word}\t{'B-PER' if word.endswith('s') else 'O'}\n" for word in line.split())
        for line in lines
    )


def roles(lines: list[str]) -> str:
    """Return the sentences as JSON lines; the second word is the predicate of the first one."""
    records = []
    for line in lines:
        words = line.split()
        tags = ["B-ARG0", "B-V", *["O"] * (len(words) - 2)]
        records.append({"tokens": words, "predicates": [{"index": 1, "tags": tags}]})
    return "".join(json.dumps(record) + "\n" for record in records)


def pairs(lines: list[str]) -> str:
    """Return pairs of sentences as JSON lines; they entail each other if they are equal."""
    records = []
    for line, following in itertools.pairwise(lines):
        records.append({"sentence1": line, "sentence2": line, "label": "entailment"})
        records.append({"sentence1": line, "sentence2": following, "label": "neutral"})
    return "".join(json.dumps(record) + "\n" for record in records)


def questions(lines: list[str]) -> str:
    """Return the sentences as JSON lines of passages; the answer is the first word."""
    records = []
    for number, line in enumerate(lines):
        answer = {"text": line.split()[0], "answer_start": 0}
        question = {"id": str(number), "question": "Who?", "answers": [answer]}
        records.append({"context": line, "qas": [question]})
    return "".join(json.dumps(record) + "\n" for record in records)


def documents(lines: list[str]) -> str:
    """Return documents of two sentences as JSON lines; the first words of both corefer."""
    records = []
    for pair in zip(lines[::2], lines[1::2], strict=True):
        sentences = [line.split() for line in pair]
        second = len(sentences[0])
        records.append({"sentences": sentences, "clusters": [[[0, 0], [second, second]]]})
    return "".join(json.dumps(record) + "\n" for record in records)


def senses(lines: list[str]) -> str:
    """Return the sentences as JSON lines; the sense of the second word is the word after it."""
    records = []
    for line in lines:
        words = line.split()
        sense = {"start": 1, "end": 1, "lemma": words[1], "pos": "NOUN", "keys": [words[2]]}
        records.append({"tokens": words, "instances": [sense]})
    return "".join(json.dumps(record) + "\n" for record in records)


def environment() -> dict[str, str]:
    """Return the environment of an activated virtual environment in which bilm is installed."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}


def execute(text: str, directory: Path) -> str:
    """Run a shell command in `directory` with this Python and return what it prints."""
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", f'bilm() {{ python -m bilm "$@"; }}\n{text}'],
        cwd=directory,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
    )
    assert done.returncode == 0, f"{text}\nexit code {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout


def execute_command(command: Command, directory: Path) -> None:
    """Run a command of a page at small sizes, after removing the outputs it would replace."""
    for output in outputs(command):
        path = directory / output
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    text = command.text
    for pattern, replacement in SMALLER:
        text = re.sub(pattern, replacement, text)
    if command.words[0] == "deepspeed":
        text = text.replace("deepspeed ", f"deepspeed --master_port {free_port()} ", 1)
    execute(text, directory)


def outputs(command: Command) -> list[str]:
    """Return the paths that a command creates, by the flags that name them."""
    flags = ["--output"]
    if command.program[-1] in ("launch/export.py", "export"):
        flags += ["--model", "--published"]
    following = zip(command.words, command.words[1:], strict=False)
    paths = [value for flag, value in following if flag in flags]
    if command.program[-1] in ("launch/convert.py", "convert"):
        positional = [word for word in command.words[2:] if not word.startswith("--")]
        paths.append(positional[3 if positional[0] == "from-published" else 2])
    return paths


def free_port() -> int:
    """Return a TCP port that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
