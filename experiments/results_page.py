"""Write docs/results.md and its plots from the results of the stages."""

from __future__ import annotations

import json
import platform
import shutil
from collections.abc import Iterator
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

ROOT = Path(__file__).resolve().parents[1]

PAGE = ROOT / "docs" / "results.md"

PICTURES = ROOT / "docs" / "results"

START, END = "<!-- figures: {} -->", "<!-- end -->"

# The best published accuracies of small biLMs that were trained on AG News alone.
PUBLISHED = {"trainable": 0.889, "frozen": 0.883, "learned": 0.905}

ANALYSES = ("sample_efficiency", "penalty", "layers", "probe", "neighbours_play", "neighbours_bank")


def write_page(work: Path) -> None:
    """Replace the results between the markers of the page; keep the text around them."""
    PICTURES.mkdir(exist_ok=True)
    parts = {
        "pretraining": _pretraining(work),
        "ag": _classification(work, "ag"),
        "sst5": _classification(work, "sst5"),
        "costs": _costs(work),
    }
    for name in ANALYSES:
        (picture,) = (work / name).glob("*.png")
        shutil.copyfile(picture, PICTURES / f"{name}.png")
        report = (work / name / "report.md").read_text(encoding="utf-8")
        table = "\n".join(_table_lines(report))
        parts[name] = f"{table}\n\n![{name}](results/{name}.png)".lstrip()
    _plot_curve(work)
    text = PAGE.read_text(encoding="utf-8")
    for name, part in parts.items():
        text = _put(text, name, part)
    write_text(PAGE, text)


def _put(text: str, name: str, part: str) -> str:
    start = START.format(name)
    before, mark, rest = text.partition(start)
    if not mark or END not in rest:
        raise CheckpointError(f"{PAGE} does not contain the markers {start} and {END}; add them")
    return f"{before}{start}\n{part}\n{END}{rest.partition(END)[2]}"


def _table_lines(report: str) -> Iterator[str]:
    """Yield the lines of the first table of a report."""
    has_begun = False
    for line in report.splitlines():
        if line.startswith("|"):
            has_begun = True
            yield line
        elif has_begun:
            return


def _stage(work: Path, name: str) -> dict[str, Any]:
    tree: dict[str, Any] = read_json(work / "stages" / f"{name}.json", CheckpointError)
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
    return markdown_table(rows) + "\n\n![pretraining curves](results/pretraining.png)"


def _classification(work: Path, name: str) -> str:
    """Return a table of every mix of every head, followed by the baselines."""
    rows = [["classifier", "mix", "validation", "test", "macro F1", "published"]]
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
            rows.append([title, mix, *cells, published])
    for baseline in _results(work, f"{name}_baselines")["baselines"]:
        scores = baseline["scores"]
        cells = [
            percent(scores["validation"]["accuracy"]),
            percent(scores["test"]["accuracy"]),
            percent(scores["test"]["macro_f1"]),
        ]
        rows.append([f"*{baseline['title']}*", "", *cells, ""])
    return markdown_table(rows)


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
