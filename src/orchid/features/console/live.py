"""Live updates: a stream of changes, without their contents.

`GET /live?of=credentialrevocations` is an event stream (`text/event-stream`). Each event names the
kind and the object that changed; the script of the page then fetches the page again. A stream is a
watch with the credential of the user, and ends with it.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Final

from orchid.features.console.api import Api, Refused, ServerRefused, Unreachable, decoded
from orchid.features.console.web.messages import WebResponse
from orchid.kernel.outbound.failures import CallFailed

REQUESTS: Final = "certificatesigningrequests"
FOLLOWED: Final = (REQUESTS, "credentialrevocations", "issuedcertificates")
BEAT_SECONDS: Final = 15.0  # so that a browser that has gone is noticed
MOST_STREAMS: Final = 4  # a browser opens six connections to a host: two remain for pages
LARGEST_LINE: Final = 4 << 20


class Changes:
    """Streams of changes, of one session."""

    def __init__(self) -> None:
        self._open = 0

    async def respond(self, api: Api, of: str) -> WebResponse:
        plural = next((name for name in FOLLOWED if name == of), "")
        if not plural:
            return WebResponse(404, b"not found\n", media="text/plain")
        if self._open >= MOST_STREAMS:
            return WebResponse(204)  # the browser does not try again
        target = await _target(api, plural)
        start = (await api.get(target, {"limit": "1"})).get("metadata", {})
        version = str(start.get("resourceVersion", ""))
        watch = f"{target}?watch=true&resourceVersion={version}"
        return WebResponse(200, media="text/event-stream", stream=self._events(api, plural, watch))

    async def _events(self, api: Api, plural: str, watch: str) -> AsyncIterator[bytes]:
        if self._open >= MOST_STREAMS:  # others have begun since the response
            return
        self._open += 1
        queue: asyncio.Queue[bytes | None] = asyncio.Queue(maxsize=16)
        reading = asyncio.create_task(_read(api, plural, watch, queue))
        try:
            yield b"retry: 3000\n\n"
            while True:
                try:
                    async with asyncio.timeout(BEAT_SECONDS):
                        event = await queue.get()
                except TimeoutError:
                    event = b": beat\n\n"
                if event is None:
                    return
                yield event
        finally:
            self._open -= 1
            reading.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await reading


async def _target(api: Api, plural: str) -> str:
    return await (api.requests() if plural == REQUESTS else api.identity(plural))


async def _read(api: Api, plural: str, watch: str, queue: asyncio.Queue[bytes | None]) -> None:
    """Put an event for each line of the watch, and None at its end."""
    with contextlib.suppress(ServerRefused, CallFailed, Refused, Unreachable):
        async with api.stream(watch) as pieces:
            rest = b""
            async for piece in pieces:
                *lines, rest = (rest + piece).split(b"\n")
                for line in lines:
                    if decoded(line).get("type") in ("ADDED", "MODIFIED", "DELETED"):
                        await queue.put(f"event: change\ndata: {plural}\n\n".encode())
                if len(rest) > LARGEST_LINE:
                    break
    await queue.put(None)
