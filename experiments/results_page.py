"""Write docs/results.md and its plots from the results of the stages."""

from __future__ import annotations

import json
import platform
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

from bilm.distributed.process import num_cores
from bilm.errors import CheckpointError
from bilm.files.strict_json import read_json
from bilm.files.writing import write_text
from downstream.reports.pages import (
    MAX_RESULTS_BYTES,
    RESULTS_FILE,
    markdown_table,
    new_figure,
    percent,
    save_figure,
)
from downstream.settings.sections import RECURRENT_HEADS
from experiments.marked_pages import put_part

ROOT = Path(__file__).resolve().parents[1]

PAGE = ROOT / "docs" / "results.md"

PICTURES = ROOT / "docs" / "results"

# The best published accuracies of small biLMs that were trained on AG News alone.
PUBLISHED = {"trainable": 0.889, "frozen": 0.883, "learned": 0.905}

ANALYSES = ("sample_efficiency", "penalty", "layers", "probe", "neighbours_play", "neighbours_bank")


@dataclass(frozen=True)
class Part:
    """A part of the page, between its markers, and the stages that it reports."""

    name: str
    write: Callable[[Path], str]
    stages: tuple[str, ...]


def write_page(work: Path) -> None:
    """Replace the results between the markers of the page; keep the text around them.

    A part whose stages have not been run in `work` is kept as it is.
    """
    PICTURES.mkdir(exist_ok=True)
    text = PAGE.read_text(encoding="utf-8")
    for part in PARTS:
        missing = [name for name in part.stages if not _stage_path(work, name).is_file()]
        if missing:
            print(f"{part.name}: kept, because these stages are not done: {', '.join(missing)}")
        else:
            text = put_part(text, part.name, part.write(work), PAGE)
    write_text(PAGE, text)


def _analysis(name: str) -> Part:
    def write(work: Path) -> str:
        (picture,) = (work / name).glob("*.png")
        shutil.copyfile(picture, PICTURES / f"{name}.png")
        report = (work / name / "report.md").read_text(encoding="utf-8")
        table = "\n".join(_table_lines(report))
        return f"{table}\n\n![{name}](results/{name}.png)".lstrip()

    return Part(name, write, (name,))


def _table_lines(report: str) -> Iterator[str]:
    """Yield the lines of the first table of a report."""
    has_begun = False
    for line in report.splitlines():
        if line.startswith("|"):
            has_begun = True
            yield line
        elif has_begun:
            return


def _stage_path(work: Path, name: str) -> Path:
    return work / "stages" / f"{name}.json"


def _stage(work: Path, name: str) -> dict[str, Any]:
    tree: dict[str, Any] = read_json(_stage_path(work, name), CheckpointError)
    return tree


def _results(work: Path, name: str) -> dict[str, Any]:
    tree: dict[str, Any] = read_json(work / name / RESULTS_FILE, CheckpointError, MAX_RESULTS_BYTES)
    return tree


def _events(work: Path, name: str, kind: str) -> list[dict[str, Any]]:
    lines = (work / name / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return [event for event in map(json.loads, lines) if event["event"] == kind]


def _pretraining(work: Path) -> str:
    rows = [
        ["biLM", "words", "steps", "minutes", "perplexity", "forward", "backward", "unknown words"]
    ]
    for name in ("news", "films"):
        corpus = read_json(work / f"{name}_corpus" / "corpus.json", CheckpointError, 1 << 28)
        heldout = json.loads(_stage(work, f"{name}_perplexity")["output"].splitlines()[-1])
        rows.append(
            [
                name,
                f"{corpus['splits']['train']['words']:,}",
                f"{_events(work, name, 'train')[-1]['step']:,}",
                f"{_stage(work, f'{name}_pretraining')['seconds'] / 60:.0f}",
                *(f"{heldout[key]:.1f}" for key in ("perplexity", "forward", "backward")),
                f"{heldout['unknown_share']:.1%}",
            ]
        )
    _plot_curve(work)
    return markdown_table(rows) + "\n\n![pretraining curves](results/pretraining.png)"


def _adaptation(work: Path) -> str:
    """Return the perplexity of english-small on two domains, before and after training on them."""
    rows = [["domain", "words", "steps", "minutes", "perplexity before", "perplexity after"]]
    for name in ("news", "films"):
        corpus = work / f"english_{name}_corpus" / "corpus.json"
        tree = read_json(corpus, CheckpointError, 1 << 28)
        before, after = (
            json.loads(_stage(work, f"english_{name}_{time}")["output"].splitlines()[-1])
            for time in ("before", "after")
        )
        rows.append(
            [
                name,
                f"{tree['splits']['train']['words']:,}",
                f"{_events(work, f'english_{name}', 'train')[-1]['step']:,}",
                f"{_stage(work, f'english_{name}_pretraining')['seconds'] / 60:.0f}",
                f"{before['perplexity']:.1f}",
                f"{after['perplexity']:.1f}",
            ]
        )
    return markdown_table(rows)


def _english_heads(work: Path, task: str) -> str:
    """Return a table of all heads on english-small, frozen and adapted."""
    rows = [["model", "classifier", "mix", "validation", "test", "macro F1"]]
    titles = {"english": "english-small", "adapted": "adapted to the domain"}
    for prefix, title in titles.items():
        rows += [[title, *row[:-1]] for row in _head_rows(work, f"{prefix}_{task}")]
    return markdown_table(rows)


def _classification(work: Path, name: str) -> str:
    """Return a table of every mix of every head, followed by the baselines."""
    rows = [["classifier", "mix", "validation", "test", "macro F1", "published"]]
    rows += _head_rows(work, name)
    for baseline in _results(work, f"{name}_baselines")["baselines"]:
        scores = baseline["scores"]
        cells = [
            percent(scores["validation"]["accuracy"]),
            percent(scores["test"]["accuracy"]),
            percent(scores["test"]["macro_f1"]),
        ]
        rows.append([f"*{baseline['title']}*", "", *cells, ""])
    return markdown_table(rows)


def _head_rows(work: Path, name: str) -> Iterator[list[str]]:
    for directory in sorted(work.glob(f"{name}_*/results.json")):
        tree = _results(work, directory.parent.name)
        if "summary" not in tree:
            continue
        head = tree["settings"]["head"]
        recurrent = head["kind"] in RECURRENT_HEADS
        units = f" ({head['encoder_dim']} units)" if recurrent else ""
        title = head["kind"] + units + (" with GloVe" if head["vectors"] else "")
        for mix, summary in tree["summary"].items():
            cells = [
                percent(summary[split][figure]["mean"], summary[split][figure]["std"])
                for split, figure in (
                    ("validation", "accuracy"),
                    ("test", "accuracy"),
                    ("test", "macro_f1"),
                )
            ]
            published = f"{100 * PUBLISHED[mix]:.1f}" if name == "ag" and mix in PUBLISHED else ""
            yield [title, mix, *cells, published]


def _costs(work: Path) -> str:
    rows = [["stage", "seconds", "peak memory (GiB)"]]
    total = 0.0
    for path in sorted((work / "stages").glob("*.json"), key=lambda path: path.stat().st_mtime):
        done = read_json(path, CheckpointError)
        total += done["seconds"]
        rows.append([done["name"], f"{done['seconds']:.0f}", f"{done['peak_memory_gib']:.2f}"])
    names = ("torch", "deepspeed", "scikit-learn", "gensim")
    versions = ", ".join(f"{package} {version(package)}" for package in names)
    return markdown_table(rows) + (
        f"\n\n{total / 60:.0f} minutes in total on {num_cores()} cores ({platform.machine()}), "
        f"Python {platform.python_version()}, {versions}."
    )


def _plot_curve(work: Path) -> None:
    """Draw training perplexity (sampled softmax) and held-out perplexity by step."""
    figure, axes = new_figure(1, 2, width=5.2, height=3.6)
    for name, axis in zip(("news", "films"), axes, strict=True):
        train, heldout = (_events(work, name, kind) for kind in ("train", "heldout"))
        axis.plot(
            [event["step"] for event in train],
            [event["perplexity_sampled"] for event in train],
            label="training, sampled softmax",
        )
        axis.plot(
            [event["step"] for event in heldout],
            [event["perplexity"] for event in heldout],
            "o-",
            label="held-out, full softmax",
        )
        axis.set(title=name, xlabel="step", ylabel="perplexity", yscale="log")
        axis.grid(alpha=0.3, which="both")
        axis.legend()
    save_figure(figure, PICTURES / "pretraining.png")


PARTS = (
    Part("pretraining", _pretraining, ("news_perplexity", "films_perplexity")),
    Part("ag", partial(_classification, name="ag"), ("ag_baselines", "ag_bilstm_learned")),
    Part("sst5", partial(_classification, name="sst5"), ("sst5_baselines", "sst5_gru")),
    *map(_analysis, ANALYSES),
    Part("adaptation", _adaptation, ("english_news_after", "english_films_after")),
    Part("english_ag", partial(_english_heads, task="ag"), ("adapted_ag_bilstm",)),
    Part("english_sst5", partial(_english_heads, task="sst5"), ("english_sst5_bilstm",)),
    Part("costs", _costs, ("ag_bilstm_learned", "sst5_gru", "layers")),
)
