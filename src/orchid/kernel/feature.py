"""Feature: what a folder of features/ adds to the server, for the loops of assembly/.

Each feature ends in one value, `FEATURE` in its feature.py, and is listed in assembly/features.py.
What needs others of a running server (admission policies, authenticators, pages) is built by a
function of the `Context` (kernel/context.py).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import msgspec

from orchid.kernel.base.metrics import Metric
from orchid.kernel.context import Context, ServerPart
from orchid.kernel.engine.kind import Kind
from orchid.kernel.runtime.declaration import ComponentIdentity, ControllerDeclaration
from orchid.kernel.server.pages.site import Page
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
    provides: tuple[ServerPart[Any], ...] = ()  # parts for this feature and others
    # A page for each path, or for all paths below a prefix that ends in a slash.
    pages: Callable[[Context], Mapping[str, Page]] | None = None
    metrics: Callable[[Context], Iterable[Metric]] | None = None
    documentation: str  # a page below docs/

    def stored_kinds(self, names: Naming) -> Iterator[Kind[Any]]:
        for declare in self.kinds:
            declared = declare(names)
            yield from declared if isinstance(declared, tuple) else (declared,)
