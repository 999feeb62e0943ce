"""OpenAPI endpoints.

    /openapi/v2           everything in one Swagger 2.0 document, as JSON or protobuf
    /openapi/v3           the list of documents, each with its hash
    /openapi/v3/apis/G/V  one group and version in OpenAPI 3.0; with ?hash= cacheable for ever

The documents are generated from the kinds' declarations by pages.py, which is imported on first
use, in a thread, so that the server starts sooner and no other request waits.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from datetime import datetime
from typing import TYPE_CHECKING

from orchid.kernel.engine.catalog import Catalog
from orchid.kernel.http.messages import Response
from orchid.kernel.server.openapi.locations import V2, V3
from orchid.kernel.server.pages.site import Page
from orchid.kernel.server.request_state import RequestState
from orchid.kernel.wire.naming import Naming

if TYPE_CHECKING:
    from orchid.kernel.server.openapi.pages import OpenApiPages


class OpenApi:
    """The pages: under `exact` paths, and under a prefix."""

    def __init__(self, catalog: Catalog, naming: Naming, openid_paths: Iterable[str]) -> None:
        self._described = (catalog, naming, tuple(openid_paths))
        self._pages: OpenApiPages | None = None
        self._making: asyncio.Task[OpenApiPages] | None = None
        self.exact: dict[str, Page] = {V2: self._show_v2, V3: self._show_index}
        self.prefixed: dict[str, Page] = {f"{V3}/": self._show_v3}

    def _show_v2(self, state: RequestState) -> Response | Awaitable[Response]:
        return self._shown(state, lambda pages: pages.show_v2(state))

    def _show_index(self, state: RequestState) -> Response | Awaitable[Response]:
        return self._shown(state, lambda pages: pages.show_index(state))

    def _show_v3(self, state: RequestState) -> Response | Awaitable[Response]:
        return self._shown(state, lambda pages: pages.show_v3(state))

    def _shown(
        self, state: RequestState, show: "Callable[[OpenApiPages], Response]"
    ) -> Response | Awaitable[Response]:
        if self._pages is not None:
            return show(self._pages)
        return self._shown_when_made(state.now, show)

    async def _shown_when_made(
        self, now: datetime, show: "Callable[[OpenApiPages], Response]"
    ) -> Response:
        if self._making is None:
            self._making = asyncio.create_task(asyncio.to_thread(self._make, now))
        self._pages = await asyncio.shield(self._making)  # others may wait for the same
        return show(self._pages)

    def _make(self, now: datetime) -> "OpenApiPages":
        from orchid.kernel.server.openapi.pages import OpenApiPages  # noqa: PLC0415 -- see above

        return OpenApiPages(*self._described, now)
