"""Controllers record what they do as Events, for `kubectl describe`."""

from typing import Protocol

from orchid.kernel.wire.meta import Object

NORMAL, WARNING = "Normal", "Warning"


class EventRecorder(Protocol):
    """Records Events; features/objects/event_writer.py writes them."""

    def record(
        self, component: str, about: Object, reason: str, message: str, *, type_: str = NORMAL
    ) -> None:
        """Record an action of `component` on an object; never waits and never fails."""
