"""Write docs/comparison.md from the recorded figures.

If the page exists, only the parts between its markers are replaced, so that text around them is
kept.
"""

from __future__ import annotations

from pathlib import Path

from bilm.files.writing import write_text
from downstream.reports.pages import new_figure, save_figure
from experiments.comparison.page_tables import (
    ALL_LABELS,
    commands_table,
    facts_table,
    losses_paragraph,
    score_table,
    share_tables,
    system_paragraphs,
    trials_table,
)
from experiments.comparison.records import Records
from experiments.comparison.systems import SYSTEMS
from experiments.marked_pages import put_part

ROOT = Path(__file__).resolve().parents[2]

PAGE = ROOT / "docs" / "comparison.md"

UNITS = {
    "bilm": "loss per word (nats)",
    "masked_lm": "loss per masked piece (nats)",
    "char_lms": "loss per character (nats)",
}

TEMPLATE = """\
# Comparison with other systems

This page compares the frozen features of a biLM with those of systems that people would use
instead. All systems that are trained here read the same text for the same time on one core, after
short trials; each reads as much of the text as its speed allows. The features are frozen. The
heads, their grid of settings, the words and the seeds are the same for all systems.
`english-small`, the model that comes with bilm, was trained for 72 minutes on two cores; it is
listed separately and is not part of the comparison of equal times.

```sh
make results DATA=DIR
```

repeats all measurements and writes this page, after those of [results.md](results.md). It skips
stages that are done. The packages of the other systems are in
`experiments/comparison/requirements.txt`. DIR contains `ag_news/`, `sst5/`,
`tasks/ner_conll2003/`, `ud_english_ewt/`, `glove/` and `open_text/`.

<!-- figures: setting -->
<!-- end -->

## Scores with all labels

<!-- figures: scores -->
<!-- end -->

AG News and SST-5: mean and maximum of each layer over the words, a trained mix of the layers, one
hidden layer. CoNLL-2003: a linear tagger, F1 of spans. English-EWT: a linear probe. For AG News,
all labels are those of 4,500 training texts; 500 more are used for validation, and all 7,600 test
texts for the scores. A score is the mean ± the standard deviation over the seeds, in percent; a
seed determines the labelled examples (with less than all labels), the initial weights and the order
of the batches of the head. Each system was trained once.

## Where other systems are ahead

<!-- figures: losses -->
<!-- end -->

## Scores with few labels

Smaller shares are stratified, and subsets of larger ones. Early stopping and the choice of settings
use the whole validation split at every share.

<!-- figures: shares -->
<!-- end -->

## Speed, memory and size

<!-- figures: facts -->
<!-- end -->

## Systems

<!-- figures: systems -->
<!-- end -->

## Learning curves

The losses have different units and cannot be compared with each other. gensim reports no held-out
loss.

<!-- figures: curves -->
<!-- end -->

## Trials

Each trial has the same training time. The table shows validation scores with a tenth of the labels.

<!-- figures: trials -->
<!-- end -->

## Commands and costs

<!-- figures: costs -->
<!-- end -->
"""


def write_page(
    work: Path, minutes: float, page: Path = PAGE, corpus: Path = Path("CORPUS")
) -> None:
    """Replace the figures of the page; write the whole page if it does not exist.

    The paths of the working directory and of the corpus are replaced by WORK and CORPUS.
    """
    records = Records.read(work)
    pictures = page.parent / "comparison"
    pictures.mkdir(parents=True, exist_ok=True)
    parts = {
        "setting": _setting(records, minutes),
        "scores": score_table(records, ALL_LABELS),
        "losses": losses_paragraph(records),
        "shares": share_tables(records),
        "facts": facts_table(records),
        "systems": system_paragraphs(records),
        "curves": _plot_curves(records, pictures / "learning_curves.png"),
        "trials": trials_table(records),
        "costs": commands_table(records, ((str(work), "WORK"), (str(corpus), "CORPUS"))),
    }
    text = page.read_text(encoding="utf-8") if page.is_file() else TEMPLATE
    for name, part in parts.items():
        text = put_part(text, name, part, page)
    write_text(page, text)


def _setting(records: Records, minutes: float) -> str:
    train = records.text["splits"]["train"]
    versions = ", ".join(f"{name} {number}" for name, number in records.versions().items())
    places = {(f["cores"], f["machine"], f["python"]) for f in records.facts.values()}
    machines = "; ".join(f"Cores: {c} ({m}), Python {p}" for c, m, p in sorted(places))
    return (
        f"The text has {train['words']:,} words in {train['sentences']:,} sentences. The training "
        f"time of each system is {minutes:g} minutes. There are {records.num_seeds()} seeds per "
        f"head. {machines}. Versions: {versions}."
    )


def _plot_curves(records: Records, path: Path) -> str:
    """Draw the held-out loss of each system over the training time."""
    shown = [name for name, points in records.curves.items() if points]
    if not shown:
        return "No learning curve was recorded."
    figure, axes = new_figure(1, len(shown), width=4.2, height=3.4)
    for name, axis in zip(shown, axes, strict=True):
        points = records.curves[name]
        axis.plot(
            [point["seconds"] / 60 for point in points], [point["loss"] for point in points], "o-"
        )
        axis.set(title=SYSTEMS[name].title, xlabel="minutes", ylabel=UNITS.get(name, "loss"))
        axis.title.set_fontsize(10)
        axis.grid(alpha=0.3)
    save_figure(figure, path)
    return f"![held-out loss over training time]({path.parent.name}/{path.name})"
