"""Every recorded case is a test: a real server must answer it as the reference did."""

from collections.abc import Iterator

import pytest

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
from tests.e2e.serving import Server, running_server

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


class AnswersDiffer(AssertionError):
    """A server answered otherwise than recorded; a server that is not there is no such failure."""


@pytest.fixture(scope="session")
def quiet_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server without controllers."""
    data_dir = tmp_path_factory.mktemp("quiet") / "data"
    with running_server(data_dir, *FLAGS, "--controllers", "") as server:
        yield server


@pytest.fixture(scope="session")
def busy_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with all its controllers."""
    with running_server(tmp_path_factory.mktemp("busy") / "data", *FLAGS) as server:
        yield server


def as_parameter(case: Case) -> object:
    reason = EXPECTED_FAILURES.get(case.name)
    marks = [pytest.mark.xfail(reason=reason, raises=AnswersDiffer)] if reason else []
    return pytest.param(case, id=f"{case.file}::{case.name}", marks=marks)


@pytest.mark.parametrize("case", [as_parameter(case) for case in CASES])
def test_answers_are_as_recorded(case: Case, request: pytest.FixtureRequest) -> None:
    """The server gives every answer of the case as the reference gave it."""
    fixture = "busy_server" if case.file in NEEDS_CONTROLLERS else "quiet_server"
    server: Server = request.getfixturevalue(fixture)

    patience = LITTLE_PATIENCE if case.name in EXPECTED_FAILURES else UNTIL_SECONDS
    found = differences_in(case, Caller(server.url, tokens_by_user()), patience=patience)

    if found:
        more = f"\n(and {len(found) - SHOWN} more)" if len(found) > SHOWN else ""
        raise AnswersDiffer("\n".join(found[:SHOWN]) + more)


def test_expected_failures_name_recorded_cases() -> None:
    """A case that was renamed or removed cannot linger in the list of expected failures."""
    names = [case.name for case in CASES]

    assert EXPECTED_FAILURES.keys() <= set(names)
    assert len(names) == len(set(names))
