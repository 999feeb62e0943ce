"""Every kind of this server: those that its features store, and those that act."""

import dataclasses
from typing import Any

from orchid.assembly.features import FEATURES
from orchid.kernel.context import Context
from orchid.kernel.engine.kind import Endpoint, Kind
from orchid.kernel.wire.meta import Object
from orchid.kernel.wire.naming import Naming


def stored_kinds(naming: Naming) -> list[Kind[Any]]:
    """Every kind that is stored."""
    return [kind for feature in FEATURES for kind in feature.stored_kinds(naming)]


def served_kinds(context: Context) -> list[Kind[Any]]:
    """Every kind that clients see: stored kinds, and acting ones."""
    endpoints: dict[type[Object], Endpoint] = {}
    acting: list[Kind[Any]] = []
    for feature in FEATURES:
        if feature.endpoints is not None:
            endpoints.update(feature.endpoints(context))
        if feature.served_kinds is not None:
            acting += feature.served_kinds(context)
    stored = [_with_endpoint(kind, endpoints.get(kind.type)) for kind in context.kinds]
    return [*stored, *acting]


def _with_endpoint(kind: Kind[Any], endpoint: Endpoint | None) -> Kind[Any]:
    """A kind with the endpoint that another file declares for it."""
    if endpoint is None:
        return kind
    return dataclasses.replace(kind, endpoints=(*kind.endpoints, endpoint))
