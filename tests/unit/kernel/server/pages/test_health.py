"""Health checks: who fails, what a summary shows, and the checks behind them."""

from types import SimpleNamespace
from typing import Any

import pytest

from orchid.kernel.server.pages.health import Health
from orchid.kernel.server.pages.readiness import Readiness
from tests.unit.kernel.server.request_states import state_of


def health(**problems: str | None) -> Health:
    def failing(problem: str | None) -> Any:
        return lambda: problem

    checks = {name: failing(problem) for name, problem in problems.items()}
    return Health({"readyz": {"ping": None, **checks}})


def asked(health: Health, target: str) -> tuple[int, str]:
    path = target.partition("?")[0]
    found = health.pages()[path](state_of("GET", target))
    return found.status, bytes(found.body).decode()


def test_a_summary_withholds_the_reason() -> None:
    """Everybody may read it; the check itself shows the reason."""
    found = health(etcd="secret address", sync=None)

    assert asked(found, "/readyz") == (
        500,
        "[+]ping ok\n[-]etcd failed: reason withheld\n[+]sync ok\nreadyz check failed\n",
    )
    assert asked(found, "/readyz/etcd") == (500, "internal server error: secret address\n")
    assert asked(found, "/readyz/sync") == (200, "ok")
    assert asked(found, "/readyz/ping") == (200, "ok")


def test_only_an_excluded_check_does_not_count() -> None:
    """Another failing one still does, and a name that no check has is warned about."""
    found = health(etcd="lost", sync="loading")

    assert asked(found, "/readyz?exclude=etcd")[0] == 500
    assert asked(found, "/readyz?exclude=etcd&exclude=sync") == (200, "ok")
    status, text = asked(found, "/readyz?verbose&exclude=etcd&exclude=sync&exclude=none")
    assert status == 200
    assert "[+]etcd excluded: ok\n" in text
    assert 'cannot be excluded: no matches for "none"\n' in text


def test_a_healthy_server_lists_its_checks_on_request() -> None:
    assert asked(health(etcd=None), "/readyz") == (200, "ok")
    assert asked(health(etcd=None), "/readyz?verbose") == (
        200,
        "[+]ping ok\n[+]etcd ok\nreadyz check passed\n",
    )


def readiness(
    *,
    following: bool = True,
    loaded: bool = True,
    lacks_key: bool = False,
    probe: Any = None,
    store: str | None = None,
) -> Readiness:
    feed: Any = SimpleNamespace(following=following, loaded=loaded, is_unreadable=None)
    encryption: Any = SimpleNamespace(lacks_key=lambda is_unreadable: lacks_key)
    return Readiness(feed, encryption, probe, lambda: store)


def failing(ready: Readiness, endpoint: str) -> list[str]:
    text = asked(ready.health(), f"/{endpoint}?verbose")[1]
    return [line[3:].split()[0] for line in text.splitlines() if line.startswith("[-]")]


AWAY = SimpleNamespace(problem="etcd is away", closed=False)
CLOSED = SimpleNamespace(problem="closed", closed=True)
FINE = SimpleNamespace(problem=None, closed=False)


@pytest.mark.parametrize(
    ("ready", "not_ready", "not_live"),
    [
        (readiness(), [], []),
        (readiness(probe=FINE), [], []),
        (readiness(following=False), ["etcd", "etcd-readiness"], ["etcd"]),
        (readiness(store="disk"), ["etcd", "etcd-readiness"], ["etcd"]),
        (readiness(loaded=False), ["informer-sync"], []),
        (readiness(lacks_key=True), ["informer-sync"], []),
        # A restart does not bring back an etcd that is out of reach, but a closed connection.
        (readiness(following=False, probe=FINE), ["etcd", "etcd-readiness"], []),
        (readiness(probe=AWAY), ["etcd", "etcd-readiness"], []),
        (readiness(probe=CLOSED), ["etcd", "etcd-readiness"], ["etcd"]),
        (readiness(probe=FINE, store="damaged"), ["etcd", "etcd-readiness"], ["etcd"]),
    ],
)
def test_each_problem_fails_its_checks(
    ready: Readiness, not_ready: list[str], not_live: list[str]
) -> None:
    assert failing(ready, "readyz") == not_ready
    assert failing(ready, "livez") == not_live
    assert failing(ready, "healthz") == not_live


def test_a_server_that_stops_is_live_but_not_ready() -> None:
    ready = readiness()
    ready.stopping = True

    assert failing(ready, "readyz") == ["shutdown"]
    assert failing(ready, "livez") == []
