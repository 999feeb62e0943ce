"""Feature: what a folder of features/ adds to the server, for the loops of assembly/.

Each feature ends in one value, `FEATURE` in its feature.py, and is listed in assembly/features.py.
A part that needs others of a running server (admission policies, authenticators, pages) is built
by assembly/, by hand.
"""

from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from orchid.kernel.engine.kind import Kind
from orchid.kernel.runtime.declaration import ComponentIdentity, ControllerDeclaration
from orchid.kernel.wire.default_roles import DefaultRole
from orchid.kernel.wire.naming import Naming

# A file of kinds/ declares one kind, or several.
Declare = Callable[[Naming], "Kind[Any] | tuple[Kind[Any], ...]"]


class Feature(msgspec.Struct, frozen=True, kw_only=True):
    name: str  # of its folder
    kinds: tuple[Declare, ...] = ()  # those that are stored
    controllers: tuple[ControllerDeclaration, ...] = ()
    roles: Callable[[Naming], tuple[DefaultRole, ...]] = lambda names: ()  # of a new server
    identities: tuple[ComponentIdentity, ...] = ()  # of what else uses the API
    documentation: str  # a page below docs/

    def stored_kinds(self, names: Naming) -> Iterator[Kind[Any]]:
        for declare in self.kinds:
            declared = declare(names)
            yield from declared if isinstance(declared, tuple) else (declared,)
