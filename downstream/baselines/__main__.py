"""What a biLM has to beat: `python -m downstream.baselines --train ... --test ... --output DIR`.

The same files, split and figures as `python -m downstream.classify`, and the same flags: those of
the head and its training concern the untrained biLM. `--vectors` is the file of word vectors whose
mean is taken; `--model` is the biLM whose shape the untrained one has.
"""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bilm.errors import ConfigError, run_command
from downstream.settings.flags import parse, read_settings, set_up
from downstream.settings.sections import Settings

if TYPE_CHECKING:
    from downstream.baselines.linear import Baseline, Texts
    from downstream.tasks.classification import Task


logger = logging.getLogger(__name__)

NAMES = ("majority", "tfidf", "svm", "glove", "svd", "skipgram", "untrained")

FORMAT = "bilm-baselines"

_NO_MODEL = "-"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command."""
    arguments = parse("baselines", __doc__, argv, _add_which)
    if arguments.model is None and arguments.config is None:
        arguments.model = _NO_MODEL
    settings = read_settings(arguments)
    settings.refuse_finetune()
    names = chosen_names(arguments.which, settings)
    if "untrained" in names:
        _check_untrained(settings)
    set_up()
    sys.stdout.write(run_baselines(settings, names, arguments.progress))
    return 0


def _add_which(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--which",
        help=f"some of {','.join(NAMES)} (default: all, but glove only with --vectors and "
        "untrained only with --model)",
    )


def chosen_names(which: str | None, settings: Settings) -> tuple[str, ...]:
    """The baselines to run, in order, having checked that they can be."""
    possible = dict.fromkeys(NAMES, True)
    possible["glove"] = settings.head.vectors is not None
    possible["untrained"] = settings.model != _NO_MODEL
    if which is None:
        return tuple(name for name in NAMES if possible[name])
    names = [name.strip() for name in which.split(",")]
    for name in names:
        if name not in NAMES:
            raise ConfigError(f"--which names {name!r}; known are {', '.join(NAMES)}")
        if not possible[name]:
            need = "--vectors FILE" if name == "glove" else "--model DIR, for its shape"
            raise ConfigError(f"--which names {name!r}, which needs {need}")
    return tuple(name for name in NAMES if name in names)


def _check_untrained(settings: Settings) -> None:
    """What the last baseline would fail by, before the first is run."""
    settings.without_vectors()
    if not Path(settings.model).exists():
        raise ConfigError(f"--model: there is no {settings.model}")


def run_baselines(settings: Settings, names: Sequence[str], progress: bool | None = None) -> str:
    """Fit and score the baselines; the table is returned, figures and a page are written."""
    # scikit-learn and torch only now, so that --help and mistakes answer at once
    from tqdm import tqdm

    from downstream.reports.pages import check_free, write_page
    from downstream.reports.report import peak_memory_gib
    from downstream.tasks.classification import read_task

    output = Path(settings.output)
    check_free(output, FORMAT, settings.overwrite)
    task = read_task(settings)
    baselines: list[Baseline] = []
    disable = None if progress is None else not progress
    with tqdm(total=len(names), desc="baselines", disable=disable) as bar:
        for name in names:
            bar.set_postfix_str(name)
            baselines.append(_run(name, settings, task, progress))
            test = baselines[-1].scores["test"].accuracy
            logger.info(
                "%s: test %.2f %%, %.0f s of CPU", name, 100 * test, baselines[-1].cpu_seconds
            )
            bar.update()
    table = results_table(baselines)
    sizes = {split: len(labels) for split, labels in task.labels.items()}
    figures = {
        "settings": settings.model_dump(mode="json"),
        "classes": list(task.classes),
        "texts": sizes,
        "baselines": [asdict(baseline) for baseline in baselines],
        "peak_memory_gib": peak_memory_gib(),
    }
    counts = ", ".join(f"{count:,} {split}" for split, count in sizes.items())
    page = [
        "# Baselines",
        f"{len(task.classes)} classes; {counts} texts; seed {settings.train.seed}. Fitted on the "
        "training split; the validation split chose the strength of regularisation.",
        table,
    ]
    write_page(output, FORMAT, figures, page, overwrite=settings.overwrite)
    return f"{table}\n\nfigures: {output / 'results.json'}\n"


def results_table(baselines: Sequence[Baseline]) -> str:
    """A line per baseline, in Markdown."""
    from downstream.reports.pages import markdown_table, percent

    rows = [["baseline", "validation", "test", "macro F1", "chosen", "CPU seconds"]]
    for baseline in baselines:
        chosen = ", ".join(f"{key} {value}" for key, value in baseline.chosen.items())
        rows.append(
            [
                baseline.title,
                percent(baseline.scores["validation"].accuracy),
                percent(baseline.scores["test"].accuracy),
                percent(baseline.scores["test"].macro_f1),
                chosen,
                f"{baseline.cpu_seconds:.0f}",
            ]
        )
    return markdown_table(rows)


def _run(name: str, settings: Settings, task: Task, progress: bool | None) -> Baseline:
    from downstream.baselines import linear as models

    if name == "untrained":
        return _untrained(settings, task, progress)
    data = texts_of(task)
    seed = settings.train.seed % 2**32  # scikit-learn's seeds are 32 bits wide
    run: dict[str, Callable[[], Baseline]] = {
        "majority": lambda: models.majority(data),
        "tfidf": lambda: models.tf_idf(data, seed),
        "svm": lambda: models.ngram_svm(data, seed),
        "glove": lambda: models.glove_mean(data, str(settings.head.vectors)),
        "svd": lambda: models.cooccurrence_svd(data, seed),
        "skipgram": lambda: models.skip_gram_mean(data, seed),
    }
    return run[name]()


def texts_of(task: Task) -> Texts:
    """The texts of each split."""
    from downstream.baselines.linear import Texts

    texts = {
        split: [task.files[file].texts[i] for i in indices]
        for split, (file, indices) in task.indices.items()
    }
    return Texts(texts, task.labels, task.classes)


def _untrained(settings: Settings, task: Task, progress: bool | None) -> Baseline:
    """A biLM of the same shape that has read nothing, under the head that the settings ask for."""
    from downstream.baselines.linear import TITLES, Baseline
    from downstream.training.experiment import run

    start = time.process_time()
    settings = settings.without_vectors()
    parent = Path(settings.output).resolve().parent
    parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".untrained.", dir=parent) as directory:
        model = Path(directory) / "model"
        save_untrained(Path(settings.model), model, settings.train.seed)
        cached = settings.model_copy(update={"cache": str(Path(directory) / "representations")})
        results = run(cached, task, model, progress)
    best = results.best
    assert best is not None
    chosen: dict[str, Any] = {"mix": best.mix, "head": settings.head.kind}
    spent = time.process_time() - start
    return Baseline("untrained", TITLES["untrained"], chosen, best.scores, spent)


def save_untrained(source: Path, directory: Path, seed: int) -> None:
    """Write a model of the shape, vocabulary and tokeniser of `source` with fresh weights."""
    import torch

    from bilm.model.language_model import BiLm
    from bilm.pretrained.model_directory import PretrainedBiLm

    trained = PretrainedBiLm.open(source)
    config = trained.model.config
    torch.manual_seed(seed)
    # Representations need no softmax; a model of word ids needs its vocabulary.
    size = None if config.characters is not None else trained.model.vocabulary_size
    vocabulary = None if size is None else trained.vocabulary
    fresh = PretrainedBiLm(BiLm(config, size), vocabulary, trained.tokenizer)
    fresh.save_pretrained(directory)


if __name__ == "__main__":
    run_command(main)
