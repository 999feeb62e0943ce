"""Every recorded case is a test: a real server must answer it as the reference did.

ORCHID_STORES=sqlite,workers,etcd ...     on these stores; `make conformance` does so
"""

import asyncio
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache

import pytest

from tests.conformance.etcd_revisions import use_up_small_revisions
from tests.conformance.exchanges import (
    TOKENS,
    UNTIL_SECONDS,
    Caller,
    Case,
    all_cases,
    differences_in,
    tokens_by_user,
)
from tests.conformance.expected_failures import EXPECTED_FAILURES
from tests.conformance.naming import TranslatingCaller
from tests.e2e.serving import Server, running_server
from tests.system_packages import require_program
from tests.unit.kernel.store import etcd_process

ISSUER = "https://orchid.test"
FLAGS = (
    *("--token-auth-file", str(TOKENS)),
    *("--service-account-issuer", ISSUER),
    *("--api-audiences", ISSUER),
)
NEEDS_CONTROLLERS = {"controllers"}  # files of cases; for all others nothing may happen by itself
LITTLE_PATIENCE = 1.0  # seconds; waiting long for what is known not to come helps nobody
SHOWN = 60

CASES = tuple(all_cases())
STORES = os.environ.get("ORCHID_STORES", "sqlite").split(",")
CALLERS: dict[str, type[Caller]] = {"orch": Caller, "kubernetes": TranslatingCaller}

StartServer = Callable[[str, str, bool], Server]


class AnswersDiffer(AssertionError):
    """A server answered otherwise than recorded; a server that is not there is no such failure."""


@pytest.fixture(scope="session")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartServer]:
    """Start a server of a store and a naming, with or without controllers, once for all who ask."""
    with ExitStack() as running:

        @cache
        def start(store: str, naming: str, controllers: bool) -> Server:
            data_dir = tmp_path_factory.mktemp(naming) / "data"
            quiet = () if controllers else ("--controllers", "")
            flags = (*FLAGS, *stored_in(store, running), "--naming", naming, *quiet)
            return running.enter_context(running_server(data_dir, *flags))

        yield start


def stored_in(store: str, running: ExitStack) -> tuple[str, ...]:
    """The flags of a store; an etcd of its own is started for them."""
    if store == "etcd":
        require_program("etcd")
        cluster = running.enter_context(etcd_process.running())
        asyncio.run(cluster.wait_healthy())
        asyncio.run(use_up_small_revisions(cluster.urls[0]))
        return ("--etcd-servers", cluster.urls[0])
    return {"sqlite": (), "workers": ("--workers", "3")}[store]


def as_parameter(case: Case) -> object:
    reason = EXPECTED_FAILURES.get(case.name)
    marks = [pytest.mark.xfail(reason=reason, raises=AnswersDiffer)] if reason else []
    return pytest.param(case, id=f"{case.file}::{case.name}", marks=marks)


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("naming", CALLERS)
@pytest.mark.parametrize("case", [as_parameter(case) for case in CASES])
def test_answers_are_as_recorded(case: Case, naming: str, store: str, servers: StartServer) -> None:
    """The server gives every answer of the case as the reference gave it, in either naming."""
    server = servers(store, naming, case.file in NEEDS_CONTROLLERS)
    caller = CALLERS[naming](server.url, tokens_by_user())

    patience = LITTLE_PATIENCE if case.name in EXPECTED_FAILURES else UNTIL_SECONDS
    found = differences_in(case, caller, patience=patience)

    if found:
        more = f"\n(and {len(found) - SHOWN} more)" if len(found) > SHOWN else ""
        raise AnswersDiffer("\n".join(found[:SHOWN]) + more)


def test_expected_failures_name_recorded_cases() -> None:
    """A case that was renamed or removed cannot linger in the list of expected failures."""
    names = [case.name for case in CASES]

    assert EXPECTED_FAILURES.keys() <= set(names)
    assert len(names) == len(set(names))
