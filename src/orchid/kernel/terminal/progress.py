"""A bar for each step of long work, on a terminal that has rich; nothing elsewhere."""

import sys
from types import TracebackType
from typing import Any


class Bar:
    """Draws while it is entered: `with Bar() as bar: bar.show("copy", 3, 10)`."""

    def __init__(self) -> None:
        self._drawn: Any = None
        self._steps: dict[str, Any] = {}

    def __enter__(self) -> "Bar":
        if sys.stderr.isatty():
            try:
                from rich.console import Console
                from rich.progress import Progress
            except ImportError:
                return self
            self._drawn = Progress(console=Console(stderr=True))
            self._drawn.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._drawn is not None:
            self._drawn.stop()

    def show(self, step: str, done: int, total: int) -> None:
        """Show the progress of a step; a total of 0 is unknown."""
        if self._drawn is None:
            return
        if step not in self._steps:
            self._steps[step] = self._drawn.add_task(step, total=None)
        self._drawn.update(self._steps[step], completed=done, total=total or None)
