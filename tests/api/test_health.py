"""The health endpoints: for people, for load balancers, and one check at a time."""

from pathlib import Path

import pytest

from tests.api.world import Api, api


@pytest.mark.parametrize("endpoint", ["healthz", "livez", "readyz"])
async def test_says_ok_to_anybody(server: Api, endpoint: str) -> None:
    """A healthy server answers a bare `ok`, without credentials, never to be sniffed."""
    answer = await server.call("GET", f"/{endpoint}", token=None)

    assert (answer.status, answer.text) == (200, "ok")
    assert answer.header("content-type") == "text/plain; charset=utf-8"
    assert answer.header("x-content-type-options") == "nosniff"


async def test_verbose_lists_every_check(server: Api) -> None:
    """`?verbose`, with any value, shows one line per check and a verdict."""
    answer = await server.call("GET", "/readyz?verbose=0")
    lines = answer.text.splitlines()

    assert lines[:2] == ["[+]ping ok", "[+]log ok"]
    assert lines[-2:] == ["[+]shutdown ok", "readyz check passed"]


async def test_an_excluded_check_is_not_run(server: Api) -> None:
    """A check can be left out; what is no check is named, and fails nothing."""
    answer = await server.call("GET", "/readyz?verbose&exclude=log&exclude=moon&exclude=sun")
    lines = answer.text.splitlines()

    assert "[+]log excluded: ok" in lines
    assert lines[-2] == ('warn: some health checks cannot be excluded: no matches for "moon","sun"')
    assert (await server.call("GET", "/readyz?exclude=log")).text == "ok"


async def test_one_check_alone(server: Api) -> None:
    """Each check has a path of its own; what is none is not found."""
    answer = await server.call("GET", "/livez/ping?verbose")

    assert (answer.status, answer.text) == (200, "ok")
    assert answer.header("x-content-type-options") is None
    for path in ("/livez/", "/livez/moon", "/livez/ping/"):
        missing = await server.call("GET", path)
        assert (missing.status, missing.text) == (404, "404 page not found\n")


@pytest.mark.parametrize("path", ["/livez/ping", "/readyz/etcd", "/healthz/ping"])
async def test_one_check_alone_is_not_for_everybody(server: Api, path: str) -> None:
    """Without a credential, only the overall result is returned, not single checks."""
    assert (await server.call("GET", path, token=None)).status == 403


async def test_a_stopping_server_is_live_but_not_ready(server: Api) -> None:
    """While the server drains, only readiness fails; the single check returns the reason."""
    server.server.readiness.stopping = True

    ready = await server.call("GET", "/readyz")
    alone = await server.call("GET", "/readyz/shutdown")

    assert (await server.call("GET", "/livez")).status == 200
    assert ready.status == 500
    assert ready.text.endswith("[-]shutdown failed: reason withheld\nreadyz check failed\n")
    assert (alone.status, alone.text) == (
        500,
        "internal server error: process is shutting down\n",
    )


async def test_a_server_that_has_loaded_nothing_is_not_ready(server_files: Path) -> None:
    """Before the objects are there, readiness says so."""
    async with api(server_files, ready=False) as early:
        answer = await early.call("GET", "/readyz")

    assert answer.status == 500
    assert "[-]informer-sync failed: reason withheld" in answer.text
