"""The files of deploy/, run: settings, rotation, balancer, health check, and every query.

Paths and addresses of a machine are replaced by those of the test; all else is as shipped. What is
only looked at is in tests/unit/test_packaging.py.
"""

import asyncio
import http.client
import json
import os
import re
import shutil
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.conformance.exchanges import TOKENS, tokens_by_user
from tests.e2e.https import Https
from tests.e2e.serving import free_port, running_server
from tests.unit.kernel.store import etcd_process

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
ADMIN = tokens_by_user()["admin"]
ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"
SHARED = ("ca.crt", "ca.key", "token-signing.key", "ledger.key", "encryption.yaml")
PATIENCE = 60.0


def until(true: Callable[[], Any], what: str) -> Any:
    """Wait for something that another program does by itself."""
    deadline = time.monotonic() + PATIENCE
    while not (found := true()):
        if time.monotonic() > deadline:
            pytest.fail(f"never: {what}")
        time.sleep(0.05)
    return found


def orchid(*arguments: str, folder: Path | None = None) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "orchid", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return done.stdout


@contextmanager
def running(*command: str, log: Path) -> Iterator[None]:
    """Another program, until the block ends."""
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output)
    try:
        yield
    finally:
        process.terminate()
        process.wait(20)


# --- systemd -----------------------------------------------------------------------------------


@pytest.mark.system_package("logrotate")
def test_server_with_the_shipped_settings_survives_a_rotation(tmp_path: Path) -> None:
    """logrotate renames the record; the next event begins a new one, and none is lost."""
    etc, logs = tmp_path / "etc", tmp_path / "log"
    shutil.copytree(DEPLOY / "systemd", etc)
    logs.mkdir(mode=0o700)
    for path in (etc / "orchid.toml", etc / "orchid.logrotate"):
        text = path.read_text().replace("/var/log/orchid", str(logs))
        path.write_text(text.replace("/etc/orchid", str(etc)).replace("su orchid orchid", _su()))
    record = logs / "audit.log"

    with (
        running_server(
            tmp_path / "data", "--config", str(etc / "orchid.toml"), *_tokens()
        ) as server,
        Https(server.port) as client,
    ):
        client.send("POST", ACCOUNTS, {"metadata": {"name": "before"}}, token=ADMIN)
        until(lambda: "before" in record.read_text(), "the first event")
        command = ["logrotate", "--force", "--state", str(tmp_path / "state")]
        subprocess.run([*command, str(etc / "orchid.logrotate")], check=True, timeout=60)
        client.send("POST", ACCOUNTS, {"metadata": {"name": "after"}}, token=ADMIN)
        until(lambda: record.exists() and "after" in record.read_text(), "an event in a new file")

    (rotated,) = (path for path in logs.iterdir() if path != record)
    assert "before" in rotated.read_text()
    assert record.stat().st_mode & 0o777 == 0o600
    for path in (record, rotated):
        assert all(json.loads(line)["kind"] == "Event" for line in path.read_text().splitlines())


def _su() -> str:
    import grp
    import pwd

    return f"su {pwd.getpwuid(os.getuid()).pw_name} {grp.getgrgid(os.getgid()).gr_name}"


def _tokens() -> tuple[str, str]:
    return "--token-auth-file", str(TOKENS)


# --- supervisord -------------------------------------------------------------------------------


@pytest.mark.system_package("supervisord")
def test_supervisord_starts_a_killed_server_again(tmp_path: Path) -> None:
    """With the shipped program section; a stop is awaited, and the server drains."""
    port = free_port()
    settings = tmp_path / "orchid.toml"
    settings.write_text(f'data-dir = "{tmp_path}/data"\nlisten = "127.0.0.1:{port}"\n')
    program = (DEPLOY / "supervisor" / "orchid.conf").read_text()
    user = next(line for line in program.splitlines() if line.startswith("user="))
    for shipped, here in (
        ("/opt/orchid/bin/orchid", f"{sys.executable} -m orchid"),
        ("/etc/orchid", str(tmp_path)),
        ("/var/lib/orchid", str(tmp_path)),
        ("/var/log/orchid", str(tmp_path)),
        (user, ""),
    ):
        assert shipped in program
        program = program.replace(shipped, here)
    whole = tmp_path / "supervisord.conf"
    whole.write_text(f"[supervisord]\nnodaemon=true\n{program}")
    files = ("-l", str(tmp_path / "log"), "-j", str(tmp_path / "pid"))
    command = ("supervisord", "-c", str(whole), *files, "-d", str(tmp_path))

    with running(*command, log=tmp_path / "supervisord.log"):
        until(lambda: status(port, "/readyz") == 200, "the server is started")
        lock = tmp_path / "data" / "orchid.db-lock"
        first = lock.read_text()
        os.kill(int(first), 9)
        until(lambda: lock.read_text() not in ("", first), "another server is started")
        until(lambda: status(port, "/readyz") == 200, "it serves")

    assert status(port, "/readyz") == 0
    assert "server.stopping" in (tmp_path / "orchid.log").read_text()


# --- containers --------------------------------------------------------------------------------


def test_health_check_follows_the_server(tmp_path: Path) -> None:
    """Exit code 0 while the server lives, 1 when nobody answers."""
    check = [sys.executable, str(DEPLOY / "container" / "healthcheck.py")]

    with running_server(tmp_path / "data", "--controllers", "") as server:
        alive = subprocess.run([*check, str(server.port)], check=False, timeout=60)
    dead = subprocess.run([*check, str(server.port)], check=False, timeout=60)

    assert (alive.returncode, dead.returncode) == (0, 1)


@pytest.mark.system_package("etcd", "haproxy")
def test_three_servers_behind_the_balancer_are_one(tmp_path: Path) -> None:
    """As in compose.yaml: shared identity by `orchid init`, one etcd, HAProxy as shipped."""
    front = free_port()
    orchid("init", "--data-dir", str(tmp_path / "identity"))
    with ExitStack() as started:
        cluster = started.enter_context(etcd_process.running())
        asyncio.run(cluster.wait_healthy())
        flags = ("--config", str(DEPLOY / "compose" / "orchid.toml"), *_tokens())
        flags += ("--etcd-servers", cluster.urls[0])
        servers = []
        for number in (1, 2, 3):
            own = tmp_path / f"orchid-{number}"
            own.mkdir(mode=0o700)
            for name in SHARED:
                shutil.copy(tmp_path / "identity" / name, own / name)
            sealing = ("--encryption-provider-config", str(own / "encryption.yaml"))
            servers.append(started.enter_context(running_server(own, *flags, *sealing)))
        ports = [server.port for server in servers]
        balancer = balancer_configuration(tmp_path, front, ports)
        started.enter_context(running("haproxy", "-db", "-f", str(balancer), log=tmp_path / "log"))
        until(lambda: status(front, "/readyz") == 200, "the balancer finds a server")

        with Https(ports[0]) as first:
            first.send("POST", ACCOUNTS, {"metadata": {"name": "builder"}}, token=ADMIN)
            asked = {"spec": {"audiences": ["https://localhost:6443"]}}
            token = first.send("POST", f"{ACCOUNTS}/builder/token", asked, token=ADMIN)
        whose = token.json["status"]["token"]
        answers = {reviewed(port, whose) for port in (*ports, front, front, front)}
        servers[0].stop()
        survived = {status(front, "/readyz") for _ in range(6)}

    assert answers == {"system:serviceaccount:default:builder"}
    assert survived == {200}


def balancer_configuration(folder: Path, front: int, ports: list[int]) -> Path:
    """The shipped file, with addresses on loopback in place of those of containers."""
    text = (DEPLOY / "compose" / "haproxy.cfg").read_text().replace("bind :6443", f"bind :{front}")
    for number, port in enumerate(ports, 1):
        text = text.replace(f" orchid-{number}:6443", f" 127.0.0.1:{port}")
    written = folder / "haproxy.cfg"
    written.write_text(text)
    return written


def status(port: int, path: str) -> int:
    try:
        with Https(port) as client:
            return client.send("GET", path).status
    except (OSError, http.client.HTTPException):
        return 0


def reviewed(port: int, token: str) -> str:
    """Whom a server takes for the bearer of a token."""
    with Https(port) as client:
        reviews = "/apis/authentication.orch.io/v1/selfsubjectreviews"
        answer = client.send("POST", reviews, {}, token=token)
        return str(answer.json["status"]["userInfo"]["username"])


# --- monitoring --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a Prometheus with the shipped configuration, which reads a busy server."""
    folder = tmp_path_factory.mktemp("monitoring")
    policy = ("--audit-policy-file", str(DEPLOY / "systemd" / "audit-policy.yaml"))
    flags = (*policy, "--audit-log-path", str(folder / "audit.log"), *_tokens())
    port = free_port()
    with running_server(folder / "data", *flags) as server, Https(server.port) as client:
        configuration = prometheus_configuration(folder, server.port, server.kubeconfig)
        command = ("prometheus", f"--config.file={configuration}", "--log.level=warn")
        command += (f"--web.listen-address=127.0.0.1:{port}", f"--storage.tsdb.path={folder}/tsdb")
        command += (f"--web.console.templates={configuration.parent}",)
        with running(*command, log=folder / "prometheus.log"):
            address = f"http://127.0.0.1:{port}"

            def seen_twice() -> bool:
                client.send("POST", f"{ACCOUNTS}/default/token", {}, token=ADMIN)
                client.send("GET", ACCOUNTS, token="nobody's")
                found = asked(address, "count_over_time(orchid_build_info[1m])")
                return bool(found) and float(found[0]["value"][1]) > 2

            until(seen_twice, (folder / "prometheus.log").read_text())
            yield address


def prometheus_configuration(folder: Path, port: int, kubeconfig: Path) -> Path:
    """The shipped files, with a certificate that `orchid csr` fetches as deploy/README.md says."""
    place = folder / "prometheus"
    shutil.copytree(DEPLOY / "monitoring", place)
    shutil.copy(kubeconfig.with_name("ca.crt"), place / "ca.crt")
    as_admin = ("--kubeconfig", str(kubeconfig))
    for command in re.findall(r"^orchid (csr .+)$", (DEPLOY / "README.md").read_text(), re.M):
        orchid(*command.split(), *as_admin, folder=place)
    whole = yaml.safe_load((place / "prometheus.yaml").read_text())
    whole["global"] = {"scrape_interval": "200ms", "evaluation_interval": "200ms"}
    (job,) = whole["scrape_configs"]
    job["static_configs"] = [{"targets": [f"127.0.0.1:{port}"]}]
    job["tls_config"] = {
        name: value.replace("/etc/prometheus/orchid", str(place))
        for name, value in job["tls_config"].items()
    }
    (place / "prometheus.yaml").write_text(yaml.safe_dump(whole))
    return place / "prometheus.yaml"


def asked(address: str, query: str) -> list[Any]:
    """The current value of an expression; empty while Prometheus is not up."""
    target = f"{address}/api/v1/query?{urllib.parse.urlencode({'query': query})}"
    try:
        with urllib.request.urlopen(target, timeout=20) as answer:
            found: list[Any] = json.load(answer)["data"]["result"]
            return found
    except (OSError, http.client.HTTPException):
        return []


def dashboard_queries() -> list[str]:
    board = json.loads((DEPLOY / "monitoring" / "dashboard.json").read_text())
    return [target["expr"] for panel in board["panels"] for target in panel.get("targets", ())]


# Of features that this server does not use, and of the agent of a host.
COUNTED_LATER = {
    "apiserver_authorization_webhook_evaluations_fail_open_total",
    "orchid_acme_requests_total",
    "orchid_agent_clock_skew_seconds",
    "orchid_agent_output_expires_timestamp_seconds",
    "orchid_agent_output_state",
    "orchid_agent_reloads_total",
    "orchid_notices_failing",
    "orchid_certificate_authority_end_seconds",
    "orchid_cluster_reviews_total",
    "orchid_published_bundle_consumers",
    "orchid_token_exchanges_total",
}


def alert_queries() -> dict[str, str]:
    (group,) = yaml.safe_load((DEPLOY / "monitoring" / "alerts.yaml").read_text())["groups"]
    return {rule["alert"]: rule["expr"] for rule in group["rules"]}


@pytest.mark.system_package("prometheus")
def test_every_query_of_the_dashboard_gives_an_answer(prometheus: str) -> None:
    """A panel that stays empty shows nothing, and nobody knows whether that is good."""
    queries = dashboard_queries()
    filled = {
        query: query.replace("$__rate_interval", "1m").replace("$instance", ".*")
        for query in queries
    }

    empty = [query for query, expression in filled.items() if not asked(prometheus, expression)]

    assert len(queries) > 15
    assert empty == []


@pytest.mark.system_package("prometheus")
def test_page_of_prometheus_itself_shows_the_server(prometheus: str) -> None:
    """Without Grafana: every part of the page has rows, and they say that all is well."""

    def filled() -> str:
        with urllib.request.urlopen(f"{prometheus}/consoles/orchid.html", timeout=20) as answer:
            page: str = answer.read().decode()
        return page if "processor of" in page else ""  # a rate needs two readings

    page = until(filled, "every rate is known")
    parts = page.split("<section>")[1:]

    assert len(parts) > 5
    assert [part for part in parts if "<tr>" not in part] == []
    assert 'class="good">answers' in page
    assert 'class="bad"' not in page


@pytest.mark.system_package("prometheus")
def test_every_alert_looks_at_metrics_that_there_are(prometheus: str) -> None:
    """An alert on a metric that nobody has is silent for ever."""
    names = {
        name
        for query in [*alert_queries().values(), *dashboard_queries()]
        for name in re.findall(r"\b(?:up|(?:[a-z]+_){2,}[a-z]+)\b(?=[{\[)\s])", query)
    }

    missing = {name for name in names if not asked(prometheus, name)}

    assert len(names) > 15
    assert missing <= COUNTED_LATER


@pytest.mark.system_package("prometheus")
def test_rules_are_loaded_and_silent_on_a_server_that_is_well(prometheus: str) -> None:
    """Prometheus evaluates each of them without an error, and none fires."""

    def evaluated() -> list[Any]:
        with urllib.request.urlopen(f"{prometheus}/api/v1/rules", timeout=20) as answer:
            (group,) = json.load(answer)["data"]["groups"]
        rules: list[Any] = group["rules"]
        return rules if all(rule["health"] != "unknown" for rule in rules) else []

    rules = until(evaluated, "all rules are evaluated")

    assert {rule["name"]: rule["health"] for rule in rules} == dict.fromkeys(alert_queries(), "ok")
    assert [rule["name"] for rule in rules if rule["state"] == "firing"] == []
