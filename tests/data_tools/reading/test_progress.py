from __future__ import annotations

import re

import pytest

from data_tools.reading import progress


def test_plain_lines_report_share_speed_and_remaining_time(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = 0.0
    monkeypatch.setattr(progress.time, "monotonic", lambda: now)
    with progress.Progress("read", 1000) as bar:
        for second in range(1, 26):
            now = float(second)
            bar.update(second * 10, second * 500)
    lines = capsys.readouterr().err.splitlines()
    assert lines == [
        "read: 10%, 5,000 words, 500 words/s, 90 s left",
        "read: 20%, 10,000 words, 500 words/s, 80 s left",
    ]


def test_shows_a_bar_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    with progress.Progress("read", 10) as bar:
        bar.update(5, 1234)
    shown = capsys.readouterr().err
    assert re.search(r"read: .*50%\|.*left.*1,234 words, [\d,]+ words/s", shown)
