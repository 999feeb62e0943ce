"""Every page of the server over a socket, where a handler begins without a task.

`/trust/NAME/SEQUENCE.pem` answered 500 to everybody: it called the API, which needs a task, and all
tests of the page ran in one. The paths are those of the server's own table of pages, so that a new
page cannot be left out.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from orchid.features.trust_bundles.server import TrustServer
from orchid.kernel.server.pages.site import Pages
from tests.api.world import ADMIN, Api
from tests.security.listening import bearer
from tests.unit.features.beside import Beside, beside
from tests.unit.features.trust_bundles.test_pages import published
from tests.unit.kernel.http.listening import Running, serving

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
CALLERS = {"anonymous": (), "administrator": (bearer(ADMIN),)}
FAILED = 500

# Documented paths below each prefix.
EXAMPLES: dict[str, tuple[str, ...]] = {
    "/trust/": ("pay.pem", "pay.p12", "pay.nopassword.p12", "pay.json", "pay/SEQUENCE.pem"),
    "/ledger/": ("checkpoint", "key", "tile/0/000", "tile/entries/000", "tile/0/000.p/1"),
    "/crl/": ("web.crl", "web.pem"),
    "/webhook/clusters/": ("kind/authorize",),
    "/acme/": (
        "web/directory", "web/new-nonce", "web/new-account", "web/new-order", "web/revoke-cert",
        "web/key-change", "web/account/a/b", "web/order/a/b", "web/order/a/b/finalize",
        "web/authorization/a/b/0", "web/certificate/a/b",
    ),
    "/renewal-info/": ("aYhba4dGQEHhs3uEe6CuLN4ByNQ.AIdlQyE",),
    "/openapi/v3/": ("api/v1", "apis/identity.orch.io/v1"),
}  # fmt: skip
# Without an object that the test does not have, an administrator gets these.
SERVED = frozenset(("pay.pem", "pay.p12", "pay.nopassword.p12", "pay/SEQUENCE.pem", "api/v1"))
UNAVAILABLE = frozenset(("/readyz", "/ledger/"))  # 503 while controllers and the log do not run


@pytest.fixture
async def world(server_files: Path) -> AsyncIterator[Beside]:
    async with beside(server_files) as made, made.running("bundle-publisher"):
        following = asyncio.create_task(made.server.context.port(TrustServer).run())
        yield made
        following.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await following


def pages_of(server: Api) -> Pages:
    return server.server.chain._pages


async def status(running: Running, method: str, path: str, *headers: str) -> int:
    client = await running.connect()
    client.get(path, "Connection: close", "Content-Length: 0", *headers, method=method)
    head = await client.head()
    await client.rest()
    return head.status


def test_every_prefix_has_examples(server: Api) -> None:
    assert EXAMPLES.keys() == dict(pages_of(server)._prefixes).keys()


@pytest.mark.parametrize("caller", CALLERS)
async def test_every_exact_page_answers(server: Api, caller: str) -> None:
    """With every method, also those that it does not have."""
    paths = sorted(pages_of(server)._extra.keys() | {"/version", "/api", "/apis"})
    async with serving(server.server.chain) as running:
        statuses = {
            (method, path): await status(running, method, path, *CALLERS[caller])
            for path in paths
            for method in METHODS
        }

    assert len(paths) > 20
    failed = {ask for ask, code in statuses.items() if code >= FAILED}
    assert {path for _, path in failed if not path.startswith("/readyz")} == set()


@pytest.mark.parametrize("caller", CALLERS)
@pytest.mark.parametrize("prefix", EXAMPLES)
async def test_every_page_below_a_prefix_answers(world: Beside, prefix: str, caller: str) -> None:
    """An object that is there, or not; with every method."""
    bundle = await published(world)
    statuses: dict[tuple[str, str], int] = {}
    async with serving(world.server.chain) as running:
        for path in EXAMPLES[prefix]:
            target = prefix + path.replace("SEQUENCE", str(bundle.status.sequence))
            for method in METHODS:
                statuses[method, path] = await status(running, method, target, *CALLERS[caller])

    most = 503 if prefix in UNAVAILABLE else 499
    assert {ask: code for ask, code in statuses.items() if code > most} == {}
    if caller == "administrator":
        assert {statuses["GET", path] for path in SERVED & set(EXAMPLES[prefix])} <= {200}
