"""What rotation costs: calls of a request, memory and time of 100,000 recorded tokens: run 7.

    make rotation-costs

Calls are counted as in tests/api/test_call_budgets.py: with token keys in files, as before keys
were objects; with one stored key; and with several, as in a rotation. Rows of long tokens are
counted by a server whose event loop is watched meanwhile.
"""

import argparse
import asyncio
import contextlib
import sys
import tempfile
import time
import tracemalloc
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from orchid.features.accounts.kinds.service_account import ServiceAccount
from orchid.features.token_keys.kinds.signing_key import SigningKey
from orchid.features.token_keys.long_tokens import DAY, PREFIX, LongTokens
from orchid.kernel.credentials import keys
from orchid.kernel.credentials.token_claims import AccountClaims, Reference
from orchid.kernel.engine.cache.objects import stored_form
from orchid.kernel.store.interface import ABSENT, MAX_CHANGES, Change, Store
from orchid.kernel.store.sqlite.store import SQLiteStore
from orchid.kernel.wire.meta import ObjectMeta
from tests.api.test_call_budgets import ACCOUNTS, AUTHENTICATION, JOBS, cheapest
from tests.api.test_signing_keys import make
from tests.api.world import Api, api
from tests.rotation.tokens import Unexpected, require, say

ROWS: Final = 100_000
MOST_MEGABYTES: Final = 4.0  # of the rows, in each process
MOST_SECONDS: Final = 5.0  # until they are counted
MOST_HELD: Final = 0.05  # seconds of processor time without a turn of the event loop
MORE_KEYS: Final = 6
SAME: Final = 1  # calls more or fewer


# --- calls ------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def served(home: Path, **settings: Any) -> AsyncIterator[Api]:
    async with api(home, **settings) as server:
        for number in range(50):
            await server.account(f"a{number}", "calls")
        yield server


async def calls(server: Api) -> dict[str, int]:
    """Calls of our functions for a get, a review and a token request."""
    token = await server.token("a0", "calls")

    def review(number: int) -> tuple[str, str, Any]:
        path = f"/apis/{AUTHENTICATION}/tokenreviews"
        return "POST", path, {"spec": {"token": token + " " * number}}

    def get(number: int) -> tuple[str, str, Any]:
        return "GET", f"{ACCOUNTS}/a{number:d}", None

    return {
        "get": await cheapest(server, get),
        "review": await cheapest(server, review),
        "token request": await cheapest(server, JOBS["tokenrequest"][1]),
    }


async def all_calls(home: Path) -> dict[str, dict[str, int]]:
    """The calls in each mode, by its name; keys in files come first."""
    file = home / "mine.key"
    file.touch(mode=0o600)
    file.write_text(keys.generate().pem().reveal())
    found = {}
    async with served(home / "files", service_account_signing_key_file=str(file)) as server:
        found["keys in files"] = await calls(server)
    async with served(home / "stored") as server:
        found["one stored key"] = await calls(server)
    async with served(home / "several") as server:
        for number in range(2, 2 + MORE_KEYS):
            await make(server, f"tokens-{number}", algorithm="ES256")
        found[f"{1 + MORE_KEYS} stored keys"] = await calls(server)
    return found


def changed(found: dict[str, dict[str, int]]) -> list[str]:
    """The requests that cost another number of calls than with keys in files."""
    first, *others = found.values()
    names = list(found)[1:]
    return [
        f"{what}: {one[what]} calls with {name}, {first[what]} with keys in files"
        for name, one in zip(names, others, strict=True)
        for what in first
        if abs(one[what] - first[what]) > SAME
    ]


# --- rows -------------------------------------------------------------------------------------


class Empty(msgspec.Struct):
    """A page without records."""

    records: tuple[()] = ()


class NoStore:
    """Acknowledges everything, so that only the memory of the caller is measured."""

    async def read(self, *_: Any, **__: Any) -> Empty:
        return Empty()

    async def commit(self, *_: Any) -> int:
        return 1

    def of(self, _kind: Any) -> None:
        return None


def uid(number: int) -> str:
    return f"2f1d6b3c-5b1c-4a0c-9a5e-{number:012d}"


async def megabytes(rows: int) -> float:
    """Memory of a process that has issued a long token to so many holders."""
    nothing: Any = NoStore()
    tokens = LongTokens(nothing, nothing)
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for number in range(rows):
        account = Reference(name=f"account-{number}", uid=uid(number))
        claims = AccountClaims(namespace="ci", serviceaccount=account)
        await tokens.record("k" * 43, claims, 1_900_000_000)
    after = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    return (after - before) / 1e6


class Counted(NamedTuple):
    """What it took to count the rows of a key."""

    holders: int
    seconds: float  # of processor time
    held: float  # the longest time without a turn of the event loop, in processor time


async def counted(home: Path, rows: int) -> Counted:
    store = await SQLiteStore.open(home.with_suffix(".db"))
    await _put(store, rows, _account)
    async with api(home / "data", store=store) as server:
        entry = server.server.feed.of(SigningKey).get("", "tokens-1")
        assert entry is not None
        kid = entry.object.key_id
        await _put(store, rows, lambda number: _row(kid, number))
        stop = asyncio.Event()
        watching = asyncio.create_task(_held(stop))
        await asyncio.sleep(0)
        before = time.process_time()
        dependents = server.server.context.port(LongTokens).dependents
        found = await dependents(entry.object, datetime.now(UTC))
        seconds = time.process_time() - before
        stop.set()
        return Counted(found.holders, seconds, await watching)


def _account(number: int) -> tuple[str, bytes]:
    meta = ObjectMeta(name=f"account-{number}", namespace="ci", uid=uid(number))
    account = ServiceAccount(api_version="v1", kind="ServiceAccount", metadata=meta)
    return f"core/serviceaccounts/ci/account-{number}", stored_form(account)


def _row(kid: str, number: int) -> tuple[str, bytes]:
    day = int(datetime.now(UTC).timestamp()) // DAY + 300
    key = f"{PREFIX}{kid}/ServiceAccount/ci/account-{number}/{uid(number)}"
    return key, msgspec.json.encode({day: 3})


async def _put(store: Store, rows: int, made: Any) -> None:
    for first in range(0, rows, MAX_CHANGES):
        numbers = range(first, min(first + MAX_CHANGES, rows))
        await store.commit([Change(*made(number), ABSENT) for number in numbers])


async def _held(stop: asyncio.Event) -> float:
    longest = 0.0
    while not stop.is_set():
        before = time.thread_time()
        await asyncio.sleep(0)
        longest = max(longest, time.thread_time() - before)
    return longest


async def run(home: Path, rows: int) -> None:
    """Measure, print, and require what the contract promises."""
    found = await all_calls(home)
    for name, one in found.items():
        say(f"{name:16} {', '.join(f'{what} {number} calls' for what, number in one.items())}")
    size = await megabytes(rows)
    say(f"{rows} rows take {size:.1f} MB in a process")
    rate = await counted(home / "rows", rows)
    say(
        f"{rate.holders} rows are counted in {rate.seconds:.1f} s; "
        f"the event loop is held for {rate.held * 1000:.0f} ms at most (both in processor time)"
    )
    require(not changed(found), "; ".join(changed(found)))
    require(size <= MOST_MEGABYTES, "the rows take more memory than they may")
    require(rate.holders == rows, "rows are missing")
    require(rate.seconds <= MOST_SECONDS, "counting takes longer than it may")
    require(rate.held <= MOST_HELD, "the event loop is held for longer than it may be")


def main() -> int:
    parser = argparse.ArgumentParser(description="What rotation costs.")
    parser.add_argument("--rows", type=int, default=ROWS, help=f"of long tokens (default: {ROWS})")
    rows = parser.parse_args().rows
    with tempfile.TemporaryDirectory() as directory:
        try:
            asyncio.run(run(Path(directory), rows))
        except Unexpected as problem:
            sys.stderr.write(f"not as it should be: {problem}\n")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
