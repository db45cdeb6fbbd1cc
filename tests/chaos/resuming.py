"""Resume runs from altered checkpoints: `python -m tests.chaos.resuming CONFIG RUN WORK`.

RUN was stopped halfway. Each case copies it, removes one field of its latest checkpoint (or sets a
tensor to zero), corrects the digests, and resumes in a forked child of one rank. Prints one JSON
object per line: the field, the child's exit code, its error, and the resulting curve and weights.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from bilm.errors import BilmError
from bilm.training.checkpoints import RUN_FILE, TENSOR_FILES, CheckpointStore
from bilm.training.config import load_config
from bilm.training.setup import train
from tests.launch.launching import events, sign

Alter = Callable[[Path], None]


def cases(checkpoint: Path) -> Iterator[tuple[str, Alter]]:
    """Yield every field of a checkpoint with the function that alters it."""
    run = json.loads((checkpoint / RUN_FILE).read_text(encoding="utf-8"))
    for path in _paths(run):
        yield "/".join(("run", *path)), lambda place, path=path: _drop_key(place, path)
    for file in TENSOR_FILES:
        for name in load_file(checkpoint / f"{file}.safetensors"):
            for what in ("drop", "zero"):
                yield (
                    f"{what} {file}/{name}",
                    lambda place, f=file, n=name, w=what: _alter_tensor(place, f, n, w),
                )


def _paths(tree: Any, above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield the path of every key, including nested ones."""
    for key, value in tree.items():
        yield (*above, key)
        if isinstance(value, dict):
            yield from _paths(value, (*above, key))


def _drop_key(checkpoint: Path, path: tuple[str, ...]) -> None:
    tree = json.loads((checkpoint / RUN_FILE).read_text(encoding="utf-8"))
    node = tree
    for key in path[:-1]:
        node = node[key]
    del node[path[-1]]
    (checkpoint / RUN_FILE).write_text(json.dumps(tree), encoding="utf-8")


def _alter_tensor(checkpoint: Path, file: str, name: str, what: str) -> None:
    tensors = load_file(checkpoint / f"{file}.safetensors")
    if what == "drop":
        del tensors[name]
    else:
        tensors[name] = torch.zeros_like(tensors[name])
    save_file(tensors, checkpoint / f"{file}.safetensors")


def resume(config: Path, overrides: list[str], output: Path) -> tuple[int, str]:
    """Resume in a forked child; return its exit code and its output."""
    reading, writing = os.pipe()
    process = os.fork()
    if process == 0:
        code, output_text = 1, io.StringIO()
        try:
            with contextlib.redirect_stderr(output_text):
                settings = load_config(config, [*overrides, f"train.output_dir={output}"])
                code = train(settings, allow_changes=True)  # the longer run decays more slowly
        except BilmError as error:
            code = error.exit_code
            output_text.write(f"error: {error}")
        except BaseException as error:
            output_text.write(repr(error))
        os.write(writing, output_text.getvalue()[-2000:].encode())
        os._exit(code)
    os.close(writing)
    with open(reading, "rb") as pipe:
        text = pipe.read().decode(errors="replace")
    _, status = os.waitpid(process, 0)
    return os.waitstatus_to_exitcode(status), text


def outcome(output: Path) -> tuple[list[Any], str]:
    """Return the curve, and a digest of the final progress and tensors."""
    keys = ("step", "loss_forward", "loss_backward", "gradient_norm", "learning_rate")
    keys += ("perplexity_sampled", "clipped_steps_share")
    curve: list[Any] = [[line[key] for key in keys] for line in events(output, "train")]
    curve += [[line["step"], line["perplexity"]] for line in events(output, "heldout")]
    newest = CheckpointStore(output / "checkpoints").newest()
    assert newest is not None
    digest = hashlib.sha256(newest.record.progress.model_dump_json().encode())
    for file in TENSOR_FILES:
        digest.update((newest.path / f"{file}.safetensors").read_bytes())
    return curve, digest.hexdigest()


def main() -> None:
    """Resume the unaltered run, then every case."""
    config, run, work = (Path(word) for word in sys.argv[1:4])
    overrides = sys.argv[4:]
    torch.set_num_threads(1)
    (newest,) = (run / "checkpoints").glob("step-*")
    unaltered: list[tuple[str, Alter]] = [("nothing", lambda _: None)]
    for name, alter in unaltered + list(cases(newest)):
        output = work / "run"
        shutil.copytree(run, output)
        checkpoint = output / "checkpoints" / newest.name
        alter(checkpoint)
        sign(checkpoint)
        code, text = resume(config, overrides, output)
        result: dict[str, Any] = {"field": name, "code": code, "output": text}
        if code == 0:
            result["curve"], result["digest"] = outcome(output)
        print(json.dumps(result), flush=True)
        shutil.rmtree(output)


if __name__ == "__main__":
    main()
