from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path

import pytest

from bilm.embedding.embedder import Embedder
from bilm.errors import BilmError, ConfigError, CorpusError
from downstream import QuestionAnswerer
from downstream.predict import main as predict
from downstream.span import main
from tests.conftest import ROOT
from tests.downstream.span_task import make_span_place, passages, span_flags, squad, write_lines
from tests.downstream.tag_task import results

FILES = {
    "results.json",
    "report.md",
    "model_card.md",
    "curves.png",
    "mix.png",
    "questions.png",
    "errors.jsonl",
    "errors.html",
    "answerer.json",
    "head.safetensors",
}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Train a head on a tiny biLM; the tests share the cached representations."""
    directory = make_span_place(tmp_path_factory.mktemp("span"))
    more = [*model(directory), f"--vectors={directory / 'vectors.txt'}"]
    assert main(span_flags(directory, "report", *more)) == 0
    return directory


def model(place: Path) -> list[str]:
    return [f"--model={place / 'model'}", "--gamma=20"]  # its vectors are small


def test_learns_answers_and_writes_the_report(place: Path) -> None:
    tree = results(place, "report")
    assert {path.name for path in (place / "report").iterdir()} == FILES
    scores = tree["outcomes"][0]["scores"]["test"]
    assert scores["main"] == scores["f1"] > 0.9
    assert scores["by_class"]["other"]["support"] == 40
    assert tree["questions"] == {"train": 240, "validation": 40, "test": 40}
    assert tree["widened_answers"] == {"train": 0, "validation": 0, "test": 0}
    page = (place / "report" / "report.md").read_text("utf-8")
    assert "| question word" in page
    assert "test passages also occur in the training split" in page
    errors = (place / "report" / "errors.jsonl").read_text("utf-8").splitlines()
    assert len(errors) == round(40 * (1 - scores["exact_match"]))
    assert sum(tree["test_errors"].values()) == len(errors)
    assert f"{len(errors)} of 40 test questions have an answer that is not an exact" in page
    assert f"240 training questions about {tree['passages']['train']} passages, 40 valid" in page
    shown = (place / "report" / "errors.html").read_text("utf-8")
    assert "<p>Test file <b>test.jsonl</b>: F1 " in shown


def test_second_run_does_not_run_the_bilm(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: object, **options: object) -> None:
        raise AssertionError("the biLM was run")

    monkeypatch.setattr(Embedder, "stream", fail)
    more = [*model(place), "--mix=top,none", "--epochs=1", f"--vectors={place / 'vectors.txt'}"]
    assert main(span_flags(place, "again", *more)) == 0
    assert len(results(place, "again")["outcomes"]) == 2
    with pytest.raises(AssertionError, match="the biLM was run"):
        main(span_flags(place, "other", *model(place), f"--cache={place / 'empty'}"))


@pytest.mark.parametrize(
    "more",
    [
        ["--mix=none", "--tokenizer=whitespace"],
        ["--mix=trainable"],
        ["--mix=average", "--elmo-at=both", "--max-words=4"],
    ],
)
def test_overfits_20_examples(place: Path, more: list[str]) -> None:
    path = write_lines(place / "few.jsonl", passages(10, 9))
    files = [f"--{name}={path}" for name in ("train", "validation", "test")]
    fit = ["--epochs=40", "--patience=40", "--batch-size=2", "--mix-dropout=0", "--overwrite"]
    source = [] if "--mix=none" in more else model(place)
    assert main(span_flags(place, "few", *source, *more, *files, *fit)) == 0
    tree = results(place, "few")
    assert tree["questions"]["train"] == 20
    assert tree["outcomes"][0]["scores"]["train"]["exact_match"] == 1.0
    assert tree["test_passages_in_training"] == 10
    assert (place / "few" / "errors.jsonl").read_text("utf-8") == ""


def test_same_seed_gives_the_same_result(place: Path) -> None:
    more = [*model(place), "--epochs=2", "--mix=trainable", "--dropout=0.3"]
    for name in ("one", "two"):
        main(span_flags(place, name, *more, "--seed=3"))
    main(span_flags(place, "three", *more, "--seed=4"))
    one, two, three = (
        (place / name / "head.safetensors").read_bytes() for name in ("one", "two", "three")
    )
    assert one == two
    assert one != three
    first, second = (results(place, name)["outcomes"][0] for name in ("one", "two"))
    assert first["scores"] == second["scores"]


def test_test_answers_do_not_influence_the_head(place: Path, tmp_path: Path) -> None:
    records = passages(20, 3)
    for record in records:
        for question in record["qas"]:
            question["answers"] = [{"text": record["context"], "answer_start": 0}]
    path = write_lines(tmp_path / "changed.jsonl", records)
    more = [*model(place), "--epochs=2", "--mix=trainable"]
    main(span_flags(place, "with", *more))
    main(span_flags(place, "without", *more, f"--test={path}"))
    heads = [(place / name / "head.safetensors").read_bytes() for name in ("with", "without")]
    assert heads[0] == heads[1]


def test_answerer_gives_the_scores_of_the_report(place: Path) -> None:
    answerer = QuestionAnswerer.from_pretrained(place / "report")
    records = passages(20, 3)
    pairs = [(q["question"], r["context"]) for r in records for q in r["qas"]]
    truth = [q["answers"][0] for r in records for q in r["qas"]]
    answers = answerer.predict(pairs)
    right = [a.text == t["text"] for a, t in zip(answers, truth, strict=True)]
    expected = results(place, "report")["outcomes"][0]["scores"]["test"]["exact_match"]
    assert sum(right) / len(right) == pytest.approx(expected)
    assert answerer.predict(pairs[:1])[0].text == answers[0].text
    assert answerer.predict([]) == []
    assert answerer.predict(iter(pairs)) == answers


def test_answers_have_offsets_in_the_original_text(place: Path) -> None:
    answerer = QuestionAnswerer.from_pretrained(place / "report")
    contexts = [
        "the  cat\u00a0 First\tmat ",
        "Zoe\u0308 \U0001f600 second\u2028First cre\u0300me \u65e5\u672c",
        " ".join(["\u0130stanbul"] * 450 + ["First", "na\u00efve"]),
    ]
    pairs = [("the cat First", context) for context in contexts]
    answers = answerer.predict([pairs[2], *pairs])
    assert [answer.text for answer in answers[:1]] == [answers[3].text]
    for answer, (_, context) in zip(answers[1:], pairs, strict=True):
        assert context[answer.start : answer.end] == answer.text
        assert answer.text.strip() == answer.text != ""
        assert 0 < answer.score <= 1
    with pytest.raises(CorpusError, match="pair 2 of 2: the question is empty"):
        answerer.predict([pairs[0], (" ", "a")])
    with pytest.raises(TypeError, match="pair 1 of 1 is 'who'; expected two texts"):
        answerer.predict(["who"])  # type: ignore[list-item]


def test_predict_command_reads_files_and_standard_input(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [
        '{"context": "  the cat First\u2028mat ", "qas": '
        '[{"id": "7", "question": "the cat First"}]}',
        '{"context": "a cat second on", "questions": ["second mat", "the cat"]}',
    ]
    (place / "in.jsonl").write_text("\n".join(lines), "utf-8")
    common = ["--head", str(place / "report"), "--input"]
    predict([*common, str(place / "in.jsonl"), "--output", str(place / "out.jsonl")])
    written = (place / "out.jsonl").read_text("utf-8")
    records = [json.loads(line) for line in written.split("\n")[:-1]]
    assert [set(record) for record in records] == [
        {"id", "question", "text", "start", "end", "score"},
        {"question", "text", "start", "end", "score"},
        {"question", "text", "start", "end", "score"},
    ]
    assert (records[0]["text"], records[0]["start"], records[0]["end"]) == ("mat", 16, 19)
    data = "\r\n".join(lines).encode()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
    capsys.readouterr()
    predict([*common, "-", "--output", "-"])
    assert capsys.readouterr().out == written
    with pytest.raises(ConfigError, match=r"must end in \.jsonl"):
        predict([*common, "-", "--output", str(place / "out.csv")])
    with pytest.raises(ConfigError, match="--format is csv; questions are read only as jsonl"):
        predict([*common, "-", "--output", "-", "--format", "csv"])
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b'{"context": "a"}')))
    with pytest.raises(CorpusError, match="standard input, line 1 has no question"):
        predict([*common, "-", "--output", "-"])


def test_reads_squad_and_skips_unanswerable_questions(place: Path) -> None:
    records = passages(12, 5)
    records[0]["qas"][0] |= {"answers": [], "is_impossible": True}
    path = place / "squad.json"
    path.write_text(json.dumps(squad(records)), "utf-8")
    more = [*model(place), "--mix=trainable", "--epochs=1"]
    flags = [*span_flags(place, "squad", *more)[2:], f"--train={path}", f"--test={path}"]
    flags = [flag for flag in flags if not flag.startswith("--validation")]
    with pytest.raises(CorpusError, match=r"data\[0\].paragraphs\[0\].qas\[0\] has no answer"):
        main(flags)
    assert main([*flags, "--skip-unanswerable", "--validation-share=0.25"]) == 0
    tree = results(place, "squad")
    assert tree["skipped_questions"] == {"train": 1, "test": 1}
    assert tree["questions"] == {"train": 17, "validation": 6, "test": 23}
    assert tree["test_passages_in_training"] == 9


def test_rejects_bad_passages_before_the_bilm_reads(place: Path, tmp_path: Path) -> None:
    records = passages(2, 1)
    records[1]["qas"][0]["answers"][0]["answer_start"] += 1
    path = write_lines(tmp_path / "bad.jsonl", records)
    for flag in ("--train", "--validation", "--test"):
        cache = f"--cache={tmp_path / 'cache'}"
        with pytest.raises(CorpusError, match=r"bad.jsonl, line 2: qas\[0\].answers\[0\]"):
            main([*span_flags(place, "mistake", *model(place), cache), f"{flag}={path}"])
        assert not (place / "mistake").exists()
        assert not (tmp_path / "cache").exists()


def test_error_exits_with_2(place: Path, tmp_path: Path) -> None:
    (tmp_path / "bad.jsonl").write_text('{"context": "a", "qas": [{}]}\n', "utf-8")
    command = [
        sys.executable,
        "-m",
        "bilm",
        "tasks",
        "span",
        *span_flags(place, "no", "--mix=none"),
    ]
    command.append(f"--train={tmp_path / 'bad.jsonl'}")
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 2
    assert "bad.jsonl, line 1: qas[0] has no field 'id'" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--mix=trainable"], "model is missing"),
        (["--mix=none", "--no-characters"], "needs word vectors or characters"),
        (["--mix=none", "--elmo-at=both"], "set it to 'input'"),
        (["--mix=none", "--max-words=1"], "--max-words is 1; it must be"),
        (["--mix=none", "--format=csv"], '--format is "csv"; it must be'),
        (["--mix=none", "--tokenizer=none"], '--tokenizer is "none"; it must be'),
        (
            ["--model=m", "--tokenizer=moses"],
            "^--tokenizer has an effect only for runs without --m",
        ),
    ],
)
def test_rejects_invalid_settings(place: Path, more: list[str], message: str) -> None:
    with pytest.raises(BilmError, match=message):
        main([*span_flags(place, "mistake"), *more])


def test_help_does_not_import_torch() -> None:
    code = (
        "import sys, contextlib, io\n"
        "from downstream.span import main\n"
        "with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()):\n"
        "    main(['--help'])\n"
        "assert not {'torch', 'sklearn', 'matplotlib'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)
