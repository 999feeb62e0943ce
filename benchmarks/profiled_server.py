"""An `orchid serve` whose calls are counted between two signals: the server of calls.py.

    python -m benchmarks.profiled_server FILE python -m orchid serve ...

SIGUSR1 begins to count, which FILE with the ending `.on` shows; SIGUSR2 ends it and writes FILE.
"""

import cProfile
import signal
import sys
from pathlib import Path

from orchid import cli

COMMAND = 3  # words before the command: python -m orchid


def main(file: Path, words: list[str]) -> int:
    profile = cProfile.Profile()
    on, part = file.with_suffix(".on"), file.with_suffix(".part")

    def begin(*_: object) -> None:
        profile.clear()
        on.touch()
        profile.enable()

    def end(*_: object) -> None:
        profile.disable()
        on.unlink()
        profile.dump_stats(part)
        part.replace(file)

    signal.signal(signal.SIGUSR1, begin)
    signal.signal(signal.SIGUSR2, end)
    sys.argv = ["orchid", *words[COMMAND:]]
    return cli.main()


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
