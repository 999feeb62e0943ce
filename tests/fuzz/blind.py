"""Random changes of the corpus, for machines without atheris: no coverage is followed.

`run` changes inputs of the corpus (bits, numbers, pieces of other inputs, words of the protocols)
and tries each on the target, until the time is up. The seed of a run is printed with what it finds.
"""

import random
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path

WORDS = (b"", b"\0", b"\xff", b"\r\n", b"\r\n\r\n", b"0", b"-1", b"99999999999", b'"', b"{}", b"[]")
LONGEST = 4096  # bytes of one input
MOST_CHANGES = 6


def changed(chance: random.Random, corpus: Sequence[bytes]) -> bytes:
    """One input of the corpus with a few random changes."""
    data = bytearray(chance.choice(corpus))
    for _ in range(chance.randint(1, MOST_CHANGES)):
        at, size = chance.randint(0, len(data)), chance.choice((0, 0, 1, 2, 4, 16))
        other = chance.choice(corpus)
        begin = chance.randint(0, len(other))
        piece = chance.choice(
            (
                chance.choice(WORDS),
                other[begin : begin + chance.randint(0, 64)],
                chance.randbytes(chance.randint(0, 4)),
                bytes(data[at : at + size]) * chance.randint(2, 5),
            )
        )
        data[at : at + size] = piece
    return bytes(data[:LONGEST])


def run(target: Callable[[bytes], None], corpus: Path, seconds: float, seed: int) -> str:
    """Try inputs for so many seconds; return what was found, or an empty text."""
    chance = random.Random(seed)
    inputs = [path.read_bytes() for path in sorted(corpus.iterdir())]
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        data = changed(chance, inputs)
        try:
            target(data)
        except Exception:
            kept = Path(tempfile.gettempdir()) / f"orchid-fuzz-{corpus.name}-{seed}"
            kept.write_bytes(data)
            return f"seed {seed}, input in {kept}\n{traceback.format_exc()}"
    return ""
