"""A sentencepiece model from a sample of the training text.

The settings are those under which text comes back whole: no normalisation, no white space dropped,
and byte fallback, so that a character outside the model is spelt by its bytes and none is unknown.
White space other than the plain space never gets into a piece (the vocabulary is one word a line);
it is spelt by bytes too.

The sample is every line whose seeded hash is below a bound, and the bound is halved whenever the
sample outgrows its budget: so it depends on the set of lines alone, not on their order.

Cost: one extra pass over the input; training 8,000 pieces on 8 MiB of English
took about a quarter of a minute.
"""

from __future__ import annotations

import io
import re
from pathlib import Path

from bilm.corpus.manifest import HELDOUT
from bilm.errors import ConfigError, CorpusError, TokenizerError
from data_tools.reading.chunks import MAX_LINE_BYTES, read_chunks, read_lines
from data_tools.reading.heldout import HeldoutChoice
from data_tools.reading.options import BuildOptions
from data_tools.reading.progress import Progress
from data_tools.reading.sentences import sentence_splitter

SAMPLE_BYTES = 8 << 20

CHARACTER_COVERAGE = 0.9995

# A fixed number: sums of floats over threads would otherwise change the model with the machine.
_NUM_THREADS = 2

_OTHER_SPACE = re.compile(r"[^\S ]")


def train_pieces(options: BuildOptions, model_file: Path) -> None:
    """Train a model of `options.pieces` pieces and write it to `model_file`."""
    try:
        import sentencepiece
    except ImportError:
        raise TokenizerError(
            "the tokeniser 'sentencepiece' needs sentencepiece: pip install 'bilm[data]'"
        ) from None
    sample = sample_sentences(options)
    if not sample:
        raise CorpusError("the input holds no text to train sentencepiece on")
    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(sample),
            model_writer=model,
            vocab_size=options.pieces,
            hard_vocab_limit=False,
            byte_fallback=True,
            character_coverage=CHARACTER_COVERAGE,
            normalization_rule_name="identity",
            remove_extra_whitespaces=False,
            max_sentence_length=MAX_LINE_BYTES,
            num_threads=_NUM_THREADS,
            minloglevel=2,
        )
    except RuntimeError as e:
        reason = str(e).strip().splitlines()[-1]
        raise ConfigError(
            f"sentencepiece cannot train {options.pieces} pieces (--pieces) on this text: {reason}"
        ) from None
    model_file.write_bytes(model.getvalue())


def sample_sentences(options: BuildOptions, sample_bytes: int = SAMPLE_BYTES) -> list[str]:
    """About `sample_bytes` of training sentences, chosen by a seeded hash of their lines."""
    is_heldout = HeldoutChoice(options.heldout_share, options.seed)
    # Another seed than that of held-out lines: those have the smallest hashes, and are left out.
    choice = HeldoutChoice(1.0, options.seed ^ (1 << 63))
    files = [file for file in options.inputs if file.split != HELDOUT]
    kept: list[tuple[int, str]] = []
    size, bound = 0, 1 << 64
    with Progress("sample", sum(file.path.stat().st_size for file in files)) as progress:
        for chunk in read_chunks(files, options.field, options.errors):
            for line in read_lines(chunk, options.field, options.errors).texts:
                if not line or line.isspace() or is_heldout(line):
                    continue
                if (value := choice.hash(line)) < bound:
                    kept.append((value, line))
                    size += len(line)
            while size > sample_bytes:
                bound //= 2
                kept = [(value, line) for value, line in kept if value < bound]
                size = sum(len(line) for _, line in kept)
            progress.update(chunk.bytes_read, 0)
    split = sentence_splitter(options.lines)
    sentences = [sentence for _, line in kept for sentence in split(line)]
    if options.lowercase:
        sentences = [sentence.lower() for sentence in sentences]
    return [_OTHER_SPACE.sub(" ", sentence) for sentence in sentences]
