"""Long runs of the console in a real browser: `make console-runs`.

Three servers over etcd: a revocation of the page is effective everywhere, and a console that uses
the revoked credential ends. 100,000 certificates: a search is shown while others call the server.
"""

import asyncio
import os
import shutil
import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from playwright.sync_api import expect

from benchmarks.filling import fill, records
from tests.conformance.exchanges import TOKENS
from tests.e2e.browsing import opened, running_browser, running_console
from tests.e2e.https import Https
from tests.e2e.serving import Server, running_server, sealing_flags
from tests.rotation.tokens import say
from tests.unit.kernel.store import etcd_process

pytestmark = pytest.mark.system_package("chromium", "etcd")
RBAC = "rbac.authorization.orch.io"
ADMIN = "admin-token-0001"
REVIEWS = "/apis/authentication.orch.io/v1/tokenreviews"
SECONDS_ALONE = 5
REVOCATIONS = "/apis/identity.orch.io/v1alpha1/credentialrevocations"
COUNT = int(os.environ.get("ORCHID_CONSOLE_CERTIFICATES", "100000"))
FLAGS = (
    *("--token-auth-file", str(TOKENS)),
    *("--service-account-issuer", "https://orchid.test"),
    *("--api-audiences", "https://orchid.test"),
)
# Opens a stream of the page, and notes its begin and its end.
FOLLOW = """() => {
  const stream = new EventSource(document.body.dataset.liveUrl + "?of=certificatesigningrequests");
  stream.addEventListener("open", () => { window.follows = true; });
  stream.addEventListener("error", () => { window.ended = true; stream.close(); });
}"""


def call(server: Server, method: str, target: str, body: Any = None) -> Any:
    with Https(server.port) as https:
        reply = https.send(method, target, body, token=ADMIN)
    assert reply.status < 300, reply.body
    return reply.json


def with_token(server: Server, token: str, file: Path) -> Path:
    """The kubeconfig of the server with another credential."""
    config = yaml.safe_load(server.kubeconfig.read_text())
    config["users"][0]["user"] = {"token": token}
    file.touch(mode=0o600)
    file.write_text(yaml.safe_dump(config))
    return file


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[list[Server]]:
    """Three servers over one etcd, with the same files."""
    with ExitStack() as running:
        cluster = running.enter_context(etcd_process.running())
        asyncio.run(cluster.wait_healthy())
        flags = ("--etcd-servers", cluster.urls[0], *sealing_flags(tmp_path / "keys"))
        found: list[Server] = []
        for name in ("one", "two", "three"):
            if found:
                shutil.copytree(tmp_path / "one", tmp_path / name)
            started = running_server(tmp_path / name, *flags, *FLAGS)
            found.append(running.enter_context(started))
        yield found


def test_a_revocation_of_the_page_is_effective_on_three_servers(
    servers: list[Server], tmp_path: Path
) -> None:
    """Run 3: the console with the revoked credential gets 401, and its stream ends.

    One second of the printed time is the pause of live updates.
    """
    first, second, _ = servers
    call(first, "POST", "/api/v1/namespaces/desk/serviceaccounts", {"metadata": {"name": "jane"}})
    binding = {
        "metadata": {"name": "desk"},
        "roleRef": {
            "apiGroup": RBAC,
            "kind": "ClusterRole",
            "name": "cluster-admin",
        },
        "subjects": [{"kind": "ServiceAccount", "name": "jane", "namespace": "desk"}],
    }
    call(first, "POST", f"/apis/{RBAC}/v1/clusterrolebindings", binding)
    target = "/api/v1/namespaces/desk/serviceaccounts/jane/token"
    token = call(first, "POST", target, {"spec": {}})["status"]["token"]
    time.sleep(1.1)  # the times of tokens have whole seconds
    with ExitStack() as running:
        browser = running.enter_context(running_browser())
        admin = running.enter_context(running_console(first.kubeconfig))
        kubeconfig = with_token(second, token, tmp_path / "jane.kubeconfig")
        jane = running.enter_context(running_console(kubeconfig))
        page, other = browser.new_context().new_page(), browser.new_context().new_page()
        base, others = opened(page, admin.another_link()), opened(other, jane.another_link())
        other.goto(f"{others}/requests")
        other.evaluate(FOLLOW)
        other.wait_for_function("window.follows === true")

        page.goto(f"{base}/revoke?account=desk/jane")
        page.get_by_role("combobox", name="Reason").select_option("keyCompromise")
        begun = time.monotonic()
        page.get_by_role("button", name="Revoke").click()
        expect(page.locator("#state")).to_have_text("Effective")
        effective = time.monotonic() - begun
        expect(page.locator("#servers .state")).to_have_count(3)
        other.wait_for_function("window.ended === true", timeout=5_000)
        answer = other.goto(f"{others}/requests")
        refused = []
        for server in servers:
            with Https(server.port) as https:
                refused.append(https.send("GET", "/api/v1/namespaces", token=token).status)
        browser.close()

    say(f"effective on three servers after {effective:.2f} s")
    assert answer is not None
    assert answer.status == 401
    assert refused == [401, 401, 401]


class Reviewer:
    """TokenReviews of another client, one after the other, with the time of each."""

    def __init__(self, server: Server) -> None:
        self._server = server
        target = "/api/v1/namespaces/default/serviceaccounts/default/token"
        self._token = call(server, "POST", target, {"spec": {}})["status"]["token"]

    @contextmanager
    def reviewing(self) -> Iterator[list[float]]:
        """Review until the block ends; the block gets the times."""
        stop, times = threading.Event(), list[float]()
        thread = threading.Thread(target=self._run, args=(stop, times))
        thread.start()
        try:
            yield times
        finally:
            stop.set()
            thread.join()

    def _run(self, stop: threading.Event, times: list[float]) -> None:
        review = {"spec": {"token": self._token}}
        with Https(self._server.port) as https:
            while not stop.is_set():
                begun = time.perf_counter()
                reply = https.send("POST", REVIEWS, review, token=ADMIN)
                times.append(time.perf_counter() - begun)
                assert reply.json["status"]["authenticated"]
                time.sleep(0.002)


def shown(times: list[float]) -> str:
    """The median, the 99th percentile and the maximum, in milliseconds."""
    percentiles = statistics.quantiles(times, n=100)
    values = percentiles[49], percentiles[98], max(times)
    return "median {:.1f}, p99 {:.1f}, most {:.1f} ms".format(*(one * 1000 for one in values))


def searched(page: Any, text: str) -> float:
    """The seconds from the key Enter until the rows of the result are visible."""
    page.locator("[data-search]").fill(text)
    page.evaluate("document.querySelector('main').dataset.before = 'yes'")
    begun = time.perf_counter()
    page.keyboard.press("Enter")
    page.locator("main:not([data-before]) :is(table a.row, .empty)").first.wait_for()
    return time.perf_counter() - begun


def memory(server: Server) -> float:
    """The resident memory of a server, in MB."""
    lines = Path(f"/proc/{server.pid}/status").read_text().splitlines()
    return int(next(one for one in lines if one.startswith("VmRSS")).split()[1]) / 1000


def test_a_search_of_many_certificates_is_shown_quickly(tmp_path: Path) -> None:
    """Run 6: from the key to the rows, while another client calls; the times are printed."""
    with running_server(tmp_path / "data"):
        pass  # makes the store
    fill(tmp_path / "data", records(COUNT))
    with ExitStack() as running:
        server = running.enter_context(
            running_server(tmp_path / "data", "--token-auth-file", str(TOKENS), ready_seconds=120)
        )
        console = running.enter_context(running_console(server.kubeconfig))
        browser = running.enter_context(running_browser())
        page = browser.new_context().new_page()
        page.set_default_timeout(120_000)
        reviewer = Reviewer(server)
        with reviewer.reviewing() as alone:
            time.sleep(SECONDS_ALONE)
        before, begun = memory(server), time.perf_counter()
        with reviewer.reviewing() as building:
            base = opened(page, console.another_link())  # the overview searches, too
        first = time.perf_counter() - begun
        grown = memory(server) - before
        page.goto(f"{base}/issued")
        matches = page.get_by_role("status").first.inner_text()
        with reviewer.reviewing() as beside:
            took = [searched(page, f"user-{number * 4999 % COUNT}") for number in range(20)]
        browser.close()

    say(f"{matches}; the first page, which makes the index: {first:.2f} s, {grown:.0f} MB")
    say(f"from Enter to the rows: {shown(took)}")
    say(f"TokenReviews of another client alone: {shown(alone)}")
    say(f"while the index was made: {shown(building)}; beside searches: {shown(beside)}")
    assert int(matches.split()[0]) >= COUNT
