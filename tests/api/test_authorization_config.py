"""--authorization-config: webhooks over real TLS, in the order of the file, reloaded on change."""

import asyncio
import base64
import json
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from orchid.features.rights.authorizers.configured import Authorization
from orchid.kernel.settings.errors import BadSettings
from tests.api.world import ADMIN, ALICE, Api, api
from tests.unit.kernel.outbound.loopback import PEM, Server, serving

SECRETS = "/api/v1/namespaces/ci/secrets"
PODS = "/api/v1/namespaces/ci/pods"
BUILT_IN = ({"type": "Node", "name": "node"}, {"type": "RBAC", "name": "rbac"})


def answer(**status: Any) -> bytes:
    body = json.dumps({"status": status}).encode()
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)


BROKEN = b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n"


class File:
    """An AuthorizationConfiguration that a test writes and rewrites."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / "authorization.yaml"

    def write(self, *authorizers: Any) -> str:
        self.path.write_text(
            json.dumps(
                {
                    "apiVersion": "apiserver.config.orch.io/v1",
                    "kind": "AuthorizationConfiguration",
                    "authorizers": list(authorizers),
                }
            )
        )
        return str(self.path)

    def webhook(self, name: str, server: Server, *conditions: str, **more: Any) -> dict[str, Any]:
        kubeconfig = self.folder / f"{name}.yaml"
        authority = base64.b64encode(PEM.encode()).decode()
        cluster = {"server": server.url, "certificate-authority-data": authority}
        kubeconfig.write_text(
            json.dumps(
                {
                    "current-context": "c",
                    "contexts": [{"name": "c", "context": {"cluster": "c"}}],
                    "clusters": [{"name": "c", "cluster": cluster}],
                }
            )
        )
        settings = {
            "timeout": "5s",
            "subjectAccessReviewVersion": "v1",
            "matchConditionSubjectAccessReviewVersion": "v1",
            "failurePolicy": "NoOpinion",
            "connectionInfo": {"type": "KubeConfigFile", "kubeConfigFile": str(kubeconfig)},
            "matchConditions": [{"expression": source} for source in conditions],
            **more,
        }
        return {"type": "Webhook", "name": name, "webhook": settings}


@pytest.fixture
def file(tmp_path: Path) -> File:
    return File(tmp_path)


@pytest.fixture
async def allowing() -> AsyncIterator[Server]:
    async with serving(answer(allowed=True, reason="it may")) as server:
        yield server


@pytest.fixture
async def denying() -> AsyncIterator[Server]:
    async with serving(answer(denied=True, reason="never")) as server:
        yield server


def asked(server: Server) -> list[str]:
    """The resources that a webhook was asked about."""
    specs = [json.loads(one.partition(b"\r\n\r\n")[2])["spec"] for one in server.requests]
    return [spec["resourceAttributes"]["resource"] for spec in specs]


async def metrics_of(server: Api) -> dict[str, float]:
    lines = (await server.call("GET", "/metrics")).text.splitlines()
    samples = (line.rpartition(" ") for line in lines if not line.startswith("#"))
    return {name: float(value) for name, _, value in samples}


async def test_webhooks_are_asked_in_order_where_their_conditions_hold(
    server_files: Path, file: File, allowing: Server, denying: Server
) -> None:
    """The first guards Secrets, the second allows the rest; each counts under its own name."""
    secrets = "request.?resourceAttributes.resource.orValue('') == 'secrets'"
    path = file.write(
        file.webhook("guard.example", denying, secrets, failurePolicy="Deny"),
        *BUILT_IN,
        file.webhook("open", allowing),
    )
    async with api(server_files, authorization_config=path) as server:
        refused = await server.call("GET", SECRETS, token=ALICE)
        allowed = await server.call("GET", PODS, token=ALICE)
        counted = await metrics_of(server)

    assert (refused.status, allowed.status) == (403, 200)
    assert refused.json["message"].endswith('in the namespace "ci": never')
    assert (asked(denying), asked(allowing)) == (["secrets"], ["pods"])
    name = "apiserver_authorization_"
    of_guard, of_open = 'type="Webhook",name="guard.example"', 'type="Webhook",name="open"'
    assert counted[f'{name}decisions_total{{{of_guard},decision="denied"}}'] == 1
    assert counted[f'{name}decisions_total{{{of_open},decision="allowed"}}'] == 1
    assert counted[f"{name}match_condition_exclusions_total{{{of_guard}}}"] == 1
    assert counted[f"{name}match_condition_evaluation_seconds_count{{{of_guard}}}"] == 2
    assert counted[f'{name}webhook_evaluations_total{{name="open",result="success"}}'] == 1
    assert counted[f'{name}webhook_duration_seconds_count{{name="open",result="success"}}'] == 1


@pytest.mark.parametrize(("policy", "status"), [("Deny", 500), ("NoOpinion", 200)])
async def test_the_failure_policy_decides_when_a_webhook_fails(
    server_files: Path, file: File, allowing: Server, policy: str, status: int
) -> None:
    """Deny ends the request; NoOpinion continues with the next authorizer, and is counted."""
    async with serving(BROKEN) as broken:
        path = file.write(
            file.webhook("broken", broken, failurePolicy=policy), file.webhook("open", allowing)
        )
        async with api(server_files, authorization_config=path) as server:
            found = await server.call("GET", PODS, token=ALICE)
            counted = await metrics_of(server)

    assert found.status == status
    failed_open = 'webhook_evaluations_fail_open_total{name="broken",result="error"}'
    passed_over = counted.get(f"apiserver_authorization_{failed_open}", 0)
    assert passed_over == (1 if policy == "NoOpinion" else 0)


async def test_a_webhook_has_the_time_that_the_file_gives_it(
    server_files: Path, file: File
) -> None:
    """One that says nothing is given up after its timeout."""
    async with serving(None) as silent:
        path = file.write(file.webhook("silent", silent, timeout="100ms", failurePolicy="Deny"))
        async with api(server_files, authorization_config=path) as server:
            found = await server.call("GET", PODS, token=ALICE)
            counted = await metrics_of(server)

    assert found.status == 500
    assert "no answer within 0.1 seconds" in found.text
    late = 'webhook_evaluations_total{name="silent",result="timeout"}'
    assert counted[f"apiserver_authorization_{late}"] == 1


async def test_answers_are_kept_only_where_the_file_says_so(
    server_files: Path, file: File, allowing: Server
) -> None:
    """A cache that is switched off asks each time."""
    path = file.write(file.webhook("open", allowing, cacheAuthorizedRequests=False))
    async with api(server_files, authorization_config=path) as server:
        for _ in range(2):
            await server.call("GET", PODS, token=ALICE)
        file.write(file.webhook("open", allowing, authorizedTTL="1h"))
        await server.server.context.port(Authorization).look()
        for _ in range(2):
            await server.call("GET", PODS, token=ALICE)

    assert len(allowing.requests) == 3


RELOADS = "apiserver_authorization_config_controller_automatic_reloads_total"


def reloads(counted: dict[str, float]) -> dict[str, float]:
    """How many reloads there were, by outcome; the hash of the server is not looked at."""
    return {
        name.partition('status="')[2].partition('"')[0]: value
        for name, value in counted.items()
        if name.startswith(RELOADS)
    }


def hashes(counted: dict[str, float]) -> set[str]:
    info = "apiserver_authorization_config_controller_last_config_info"
    return {name for name in counted if name.startswith(info)}


async def test_a_changed_file_takes_effect_and_a_bad_one_does_not(
    server_files: Path, file: File, allowing: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """The last valid configuration stays in use; log and metrics report the invalid one."""
    path = file.write(*BUILT_IN)
    async with api(server_files, authorization_config=path) as server:
        follower = server.server.context.port(Authorization)
        statuses = [(await server.call("GET", PODS, token=ALICE)).status]
        before = hashes(await metrics_of(server))

        file.write(*BUILT_IN, file.webhook("open", allowing))
        await follower.look()
        statuses.append((await server.call("GET", PODS, token=ALICE)).status)
        after = hashes(await metrics_of(server))

        with caplog.at_level(logging.ERROR):
            file.write(*BUILT_IN, {"type": "Webhook", "name": "open"})
            await follower.look()
            await follower.look()
            file.path.unlink()
            await follower.look()
        statuses.append((await server.call("GET", SECRETS, token=ALICE)).status)
        counted = await metrics_of(server)

    assert statuses == [403, 200, 200]
    assert reloads(counted) == {"success": 1, "failure": 2}
    assert len(before) == len(after) == 1
    assert before != after == hashes(counted)
    warnings = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert [record.message.partition(":")[0] for record in warnings] == [
        "authorization.not_reloaded"
    ] * 2
    assert "authorizers[2].webhook: Required value" in warnings[0].message


async def test_a_file_that_says_the_same_in_other_words_is_no_reload(
    server_files: Path, file: File
) -> None:
    """Blanks and comments change nothing."""
    path = file.write(*BUILT_IN)
    async with api(server_files, authorization_config=path) as server:
        file.path.write_text(f"# by hand\n{file.path.read_text()}\n")
        await server.server.context.port(Authorization).look()

        assert reloads(await metrics_of(server)) == {}


async def test_a_mended_kubeconfig_is_taken_up_without_a_change_of_the_file(
    server_files: Path, file: File, allowing: Server
) -> None:
    """A failed reload is repeated until it succeeds."""
    path = file.write(*BUILT_IN)
    async with api(server_files, authorization_config=path) as server:
        follower = server.server.context.port(Authorization)
        webhook = file.webhook("open", allowing)
        kubeconfig = file.folder / "open.yaml"
        good = kubeconfig.read_text()
        kubeconfig.write_text("clusters: []")
        file.write(*BUILT_IN, webhook)
        await follower.look()
        refused = await server.call("GET", PODS, token=ALICE)
        kubeconfig.write_text(good)
        await follower.look()
        allowed = await server.call("GET", PODS, token=ALICE)

    assert (refused.status, allowed.status) == (403, 200)


@pytest.mark.parametrize(
    ("first", "later", "status"),
    [
        (BUILT_IN, BUILT_IN[1:], "failure"),  # Node is gone
        (BUILT_IN[1:], BUILT_IN, "failure"),  # Node is new
        (BUILT_IN, BUILT_IN[::-1], "success"),
    ],
)
async def test_a_reload_keeps_the_sorts_of_authorizers(
    server_files: Path, file: File, first: list[Any], later: list[Any], status: str
) -> None:
    """They are made at the start: none may go, and none may come, but their order may change."""
    path = file.write(*first)
    async with api(server_files, authorization_config=path) as server:
        file.write(*later)
        await server.server.context.port(Authorization).look()

        assert reloads(await metrics_of(server)) == {status: 1}
        assert (await server.call("GET", PODS, token=ALICE)).status == 403


async def test_the_file_is_looked_at_while_the_server_runs(
    server_files: Path, file: File, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody has to send a signal."""
    monkeypatch.setattr("orchid.features.rights.authorizers.configured.LOOK_EVERY", 0.01)
    path = file.write(*BUILT_IN)
    async with api(server_files, authorization_config=path) as server:
        follower = server.server.context.port(Authorization)
        look, looked = follower.look, asyncio.Event()

        async def look_and_notify() -> None:
            await look()
            looked.set()

        monkeypatch.setattr(follower, "look", look_and_notify)
        file.write(*reversed(BUILT_IN))
        following = asyncio.create_task(follower.follow())
        async with asyncio.timeout(10):
            await looked.wait()
        following.cancel()

        assert reloads(await metrics_of(server)) == {"success": 1}


async def test_the_built_in_roles_are_written_where_the_file_asks_for_rbac(
    server_files: Path, file: File
) -> None:
    """As with --authorization-mode."""
    roles = "/apis/rbac.authorization.orch.io/v1/clusterroles"
    found = {}
    for name, authorizers in {
        "with": BUILT_IN,
        "without": BUILT_IN[:1],
    }.items():
        async with api(server_files, authorization_config=file.write(*authorizers)) as server:
            found[name] = len((await server.call("GET", roles, token=ADMIN)).json["items"])

    assert found["with"] > 10
    assert found["without"] == 0


@pytest.mark.parametrize(
    "flag",
    [
        {"authorization_mode": ["RBAC"]},
        {"authorization_webhook_config_file": "/x"},
        {"authorization_webhook_version": "v1beta1"},
        {"authorization_webhook_cache_authorized_ttl": "1s"},
        {"authorization_webhook_cache_unauthorized_ttl": "1s"},
    ],
)
async def test_the_file_and_the_flags_exclude_each_other(
    server_files: Path, file: File, flag: dict[str, Any]
) -> None:
    """Nobody has to guess which of them counts."""
    path = file.write(*BUILT_IN)

    with pytest.raises(BadSettings, match="--authorization-config: not to be given with --"):
        async with api(server_files, authorization_config=path, **flag):
            pass


async def test_a_bad_file_stops_the_start(server_files: Path, file: File) -> None:
    """All that is wrong, under the name of the flag."""
    path = file.write({"type": "ABAC", "name": "abac"}, {"type": "Webhook", "name": "w"})

    with pytest.raises(BadSettings) as caught:
        async with api(server_files, authorization_config=path):
            pass

    assert str(caught.value).startswith("--authorization-config: authorizers[0].type: Unsupported")
    assert "authorizers[1].webhook: Required value" in str(caught.value)


async def test_the_webhook_of_the_flags_is_called_default(
    server_files: Path, file: File, allowing: Server
) -> None:
    """The older settings count under a name too."""
    file.webhook("flags", allowing)
    kubeconfig = str(file.folder / "flags.yaml")
    async with api(
        server_files,
        authorization_mode=["Webhook"],
        authorization_webhook_config_file=kubeconfig,
    ) as server:
        assert (await server.call("GET", PODS, token=ALICE)).status == 200
        counted = await metrics_of(server)

    decided = 'decisions_total{type="Webhook",name="default",decision="allowed"}'
    assert counted[f"apiserver_authorization_{decided}"] == 1


@pytest.mark.parametrize("text", ["clusters: []", "nonsense"])
async def test_a_bad_kubeconfig_stops_the_start_under_its_flag(
    server_files: Path, tmp_path: Path, text: str
) -> None:
    """The error names the wrong setting."""
    kubeconfig = tmp_path / "bad.yaml"
    kubeconfig.write_text(text)

    with pytest.raises(BadSettings, match="--authorization-webhook-config-file: "):
        async with api(
            server_files,
            authorization_mode=["Webhook"],
            authorization_webhook_config_file=str(kubeconfig),
        ):
            pass
