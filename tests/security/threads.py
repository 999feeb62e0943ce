"""In which threads a function runs: for attacks that would keep the event loop busy."""

import threading
from typing import Any

import pytest


def threads_of(monkeypatch: pytest.MonkeyPatch, owner: object, name: str) -> list[threading.Thread]:
    """The threads in which a function of a module or class runs from now on, one for each call."""
    threads: list[threading.Thread] = []
    function = getattr(owner, name)

    def noting(*given: Any, **named: Any) -> Any:
        threads.append(threading.current_thread())
        return function(*given, **named)

    monkeypatch.setattr(owner, name, noting)
    return threads
