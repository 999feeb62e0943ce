"""The OpenAPI pages of a catalog with one kind of everything, asked as the listener would ask.

Start with `ask`; `document` gives the decoded body of one page. `Orchard` is a kind made up for
these tests: it has a field of every sort.
"""

import asyncio
from collections.abc import Awaitable
from datetime import UTC, datetime
from typing import Annotated, Any
from urllib.parse import urlsplit

import msgspec

from orchid.kernel.engine.catalog import Catalog
from orchid.kernel.engine.kind import Endpoint, Kind, Scope
from orchid.kernel.engine.request import Request, Target
from orchid.kernel.http.messages import HttpRequest, Peer, Response
from orchid.kernel.server.failures import FORESEEN, refused
from orchid.kernel.server.memory.head_facts import facts_of
from orchid.kernel.server.openapi.endpoints import V2, V3, OpenApi
from orchid.kernel.server.request_state import RequestState
from orchid.kernel.wire.meta import Object, Time
from orchid.kernel.wire.naming import KUBERNETES, Naming
from orchid.kernel.wire.options import parse_query
from orchid.kernel.wire.struct import (
    Wire,
    always,
    as_set,
    describe,
    merge_key,
    null,
    proto,
    replace,
    shaped_like,
)

NOW = datetime(2026, 11, 15, 0, 36, 47, tzinfo=UTC)
OPENID = "/openid/v1/jwks"


class Tree(Wire):
    """A tree. And more of it.

    Not for the public.
    """

    name: Annotated[str, describe("What it is called.")] = always(str)
    height: Annotated[int, proto(2, "int32")] = 0


class Fence(Wire):
    """What goes round."""

    published_as = "core.v1.FenceSpec"
    atomic = True

    posts: int = 0


class OrchardSpec(Wire):
    """What grows."""

    trees: Annotated[tuple[Tree, ...], merge_key("name")] = ()
    conditions: Annotated[tuple[Tree, ...], merge_key("name", appends=True)] = ()
    rows: tuple[str, ...] = ()
    sorts: Annotated[tuple[str, ...], as_set()] = ()
    marks: dict[str, str] = {}  # noqa: RUF012 - msgspec copies it
    seeds: bytes = b""
    planted: Annotated[Time | None, describe("When.")] = always(null)
    watered: Annotated[str | None, proto(3, "micro-time")] = None
    owner: Annotated[str | None, describe("Whose.", required=True)] = always(null)
    gate: Fence = msgspec.field(default_factory=Fence)
    season: str = ""
    anything: Any = None


class Orchard(Object):
    """Trees in rows."""

    spec: Annotated[OrchardSpec, describe("What grows.", required=True)] = msgspec.field(
        default_factory=OrchardSpec
    )
    fence: Annotated[dict[str, Any], shaped_like(Fence)] = msgspec.field(default_factory=dict)


class Harvest(Object):
    """Asks for fruit."""


class Reaper:
    async def create(self, new: Harvest, request: Request) -> Harvest:
        return new


def in_season(sent: Orchard) -> Orchard:
    return replace(sent, spec=replace(sent.spec, season=sent.spec.season or "autumn"))


def orchards(naming: Naming) -> Kind[Orchard]:
    harvest = Kind(
        type=Harvest,
        group=naming.group("authentication"),
        version="v1",
        plural="harvests",
        scope=Scope.NAMESPACED,
        acts=Reaper(),
        verbs=("create",),
    )
    return Kind(
        type=Orchard,
        group=naming.group("fruit.garden"),
        version="v1beta1",
        plural="orchards",
        scope=Scope.NAMESPACED,
        defaults=in_season,
        endpoints=(Endpoint("status"), Endpoint("harvest", verbs=("create",), kind=harvest)),
    )


def published(naming: Naming = KUBERNETES) -> OpenApi:
    return OpenApi(Catalog([orchards(naming)]), naming, [OPENID])


def ask(
    pages: OpenApi, target: str, method: str = "GET", now: datetime = NOW, **headers: str
) -> Response:
    """The answer to a request; `if_none_match` names the header `If-None-Match`."""
    url = urlsplit(target)
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    http = HttpRequest(method, target, url.path, url.query, named, Peer("127.0.0.1:1"))
    state = RequestState(http, facts_of(http), "id", now)
    state.target = Target(verb=method.lower(), path=url.path)
    state.query = parse_query(url.query)
    page = pages.exact[url.path] if url.path in (V2, V3) else pages.prefixed[f"{V3}/"]
    try:
        answer = page(state)
        return answer if isinstance(answer, Response) else asyncio.run(_awaited(answer))
    except FORESEEN as refusal:  # as the chain does
        return refused(state, refusal, KUBERNETES)


async def _awaited(answer: Awaitable[Response]) -> Response:
    return await answer


def document(pages: OpenApi, target: str) -> Any:
    return msgspec.json.decode(ask(pages, target).body)


def header(answer: Response, name: str) -> list[str]:
    """Every value of a header of an answer."""
    lines = answer.headers.decode().split("\r\n")
    pairs = (line.partition(": ") for line in lines if line)
    return [value for found, _, value in pairs if found == name]
