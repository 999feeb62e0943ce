"""One operation of somebody, as plain data: it can be printed, repeated, and left out.

An operation names objects by the names of the API, and secrets by labels: `key of op 12` is a key
that a user makes, `token:12` a token that operation 12 obtained. Names that begin with @ are read
from what exists when the operation runs: `@secret-of-authority:web` is the Secret with the key of
the authority `web`. So the same history means the same on another server.
"""

from dataclasses import dataclass, field
from typing import Any

MAKING = ("create", "apply", "put", "again")  # acts that send a whole object


@dataclass(frozen=True)
class Operation:
    """What somebody does: `id` is its number in the first run, which a shorter history keeps."""

    id: int
    actor: str
    act: str
    kind: str = ""
    name: str = ""
    namespace: str = ""
    options: dict[str, Any] = field(default_factory=dict)
    waits: bool = True  # until the controllers have done what follows from it

    @property
    def makes(self) -> bool:
        return self.act in MAKING

    def __str__(self) -> str:
        parts = [f"{self.id:4}  {self.actor}", self.act]
        place = "/".join(part for part in (self.kind, self.namespace, self.name) if part)
        parts += [place] if place else []
        parts += [f"{key}={_short(value)}" for key, value in self.options.items()]
        return " ".join(parts) + ("" if self.waits else "  (and goes on at once)")


def _short(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_short(one)}" for key, one in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_short, value)) + "]"
    return str(value)
