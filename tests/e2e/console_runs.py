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
from tests.unit.store import etcd_process

pytestmark = pytest.mark.system_package("chromium", "etcd")
RBAC = "rbac.authorization.orch.io"
ADMIN = "admin-token-0001"
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


class Callers:
    """Reads of another client, one after the other, with the time of each."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._stop = threading.Event()
        self.times: list[float] = []

    def _run(self) -> None:
        with Https(self._server.port) as https:
            while not self._stop.is_set():
                begun = time.perf_counter()
                reply = https.send("GET", "/api/v1/namespaces/default", token=ADMIN)
                assert reply.status == 200
                self.times.append(time.perf_counter() - begun)
                time.sleep(0.002)

    @contextmanager
    def calling(self) -> Iterator[None]:
        thread = threading.Thread(target=self._run)
        thread.start()
        try:
            yield
        finally:
            self._stop.set()
            thread.join()

    @property
    def p99(self) -> float:
        return statistics.quantiles(self.times, n=100)[98]


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
        base = opened(page, console.another_link())
        page.goto(f"{base}/issued")
        matches = page.get_by_role("status").first.inner_text()
        took: list[float] = []
        alone, beside = Callers(server), Callers(server)
        with alone.calling():
            time.sleep(5)
        with beside.calling():
            for number in range(20):
                page.locator("[data-search]").fill(f"{number * 4999 % COUNT}")
                begun = time.perf_counter()
                page.keyboard.press("Enter")
                page.wait_for_url(f"**q={number * 4999 % COUNT}**")
                page.locator("table a.row, .empty").first.wait_for()
                took.append(time.perf_counter() - begun)
        browser.close()

    median, most = statistics.median(took) * 1000, max(took) * 1000
    say(f"{matches}; search: median {median:.0f} ms, most {most:.0f} ms")
    say(f"p99 of others: {alone.p99 * 1000:.1f} ms alone, {beside.p99 * 1000:.1f} ms beside")
    assert f"{COUNT}" in matches.replace(",", "")
