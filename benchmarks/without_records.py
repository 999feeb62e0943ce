"""A server that issues certificates without inventory and ledger: what they cost is the difference.

Goes before the command that starts a server, as `taskset` does:

    python -m benchmarks.without_records python -m orchid serve ...

For measurements alone: nothing in the product can leave records out.
"""

import sys
from typing import Any

from orchid.admission.record_issued import RecordIssued
from orchid.cli import main
from orchid.engine.cache import objects


async def no_record(*_: Any) -> tuple[()]:
    return ()


def no_entries(*_: Any) -> list[Any]:
    return []


if __name__ == "__main__":
    recording: Any = RecordIssued
    recording.companions = no_record
    writing: Any = objects
    writing.pending = no_entries
    _python, _m, _orchid, *words = sys.argv[1:]
    sys.argv[1:] = words
    sys.exit(main())
