"""Probes that come again and again on one connection are answered at once (server/probes.py).

That is a short way past most of the chain. What is tested here is that it leads nowhere the whole
way would not: every request that is out of the ordinary gets no answer on it, and goes the whole
way. tests/unit/server/sockets/test_repeated_requests.py tests when the listener asks for it.
"""

from pathlib import Path
from typing import Any

import pytest

from orchid.server.sockets.messages import HttpRequest, Peer, Response
from tests.api.world import ADMIN, Api, api
from tests.conformance.exchanges import tokens_by_user

ALICE = tokens_by_user()["alice"]
BINDINGS = "/apis/rbac.authorization.orch.io/v1/clusterrolebindings"


class Probe:
    """The same headers again and again on one connection, as the reader hands them on."""

    def __init__(self, server: Api, token: str | None, **headers: str) -> None:
        self._chain, self._probes = server.server.chain, server.server.probes
        self._headers = headers
        if token is not None:
            self._headers["authorization"] = f"Bearer {token}"
        self.peer = Peer("127.0.0.1:1")
        self._memo: dict[str, Any] = {}

    def _request(self, path: str, method: str) -> HttpRequest:
        place, _, query = path.partition("?")
        return HttpRequest(
            method, path, place, query, self._headers, self.peer, head_memo=self._memo
        )

    async def whole_way(self, path: str = "/livez", method: str = "GET") -> Response:
        answer = await self._chain(self._request(path, method))
        assert isinstance(answer, Response)
        return answer

    def at_once(self, path: str = "/livez", method: str = "GET") -> Response | None:
        return self._probes.answer(self._request(path, method))


def fixed_headers(answer: Response) -> list[bytes]:
    """The headers, without the one that is another each time."""
    return [line for line in answer.headers.splitlines() if not line.startswith(b"Audit-Id")]


@pytest.mark.parametrize("token", [ADMIN, ALICE, None])
@pytest.mark.parametrize("path", ["/livez", "/readyz", "/healthz?verbose", "/livez?exclude=log"])
async def test_the_short_way_gives_the_same_answer(
    server: Api, token: str | None, path: str
) -> None:
    """For whoever may all, for whoever has it by RBAC, and for nobody in particular."""
    probe = Probe(server, token)
    before = probe.at_once(path)
    whole = await probe.whole_way(path)

    short = probe.at_once(path)

    assert before is None
    assert short is not None
    assert (short.status, short.body) == (whole.status, whole.body) != (0, b"")
    assert fixed_headers(short) == fixed_headers(whole)
    assert short.headers != whole.headers  # each has an audit id of its own


async def test_another_request_with_the_same_headers_goes_the_whole_way(server: Api) -> None:
    """Only the very same method and target were let in before."""
    probe = Probe(server, ALICE)
    await probe.whole_way("/livez")

    others = [probe.at_once("/readyz"), probe.at_once("/livez?verbose")]
    others += [probe.at_once("/livez", "POST"), probe.at_once("/livez/ping")]

    assert others == [None] * 4
    assert probe.at_once("/livez") is not None


@pytest.mark.parametrize("token", [ALICE, None])
async def test_a_right_to_a_probe_ends_with_its_binding(server: Api, token: str | None) -> None:
    """RBAC is asked in every request, on the short way as well."""
    probe = Probe(server, token)
    await probe.whole_way()
    before = probe.at_once()

    for name in ("system:public-info-viewer", "system:discovery"):
        assert (await server.call("DELETE", f"{BINDINGS}/{name}")).status == 200

    assert before is not None
    assert probe.at_once() is None
    assert (await probe.whole_way()).status == 403
    assert probe.at_once() is None


async def test_a_binding_that_has_nothing_to_do_with_it_ends_the_short_way_once(
    server: Api,
) -> None:
    """Rights are worked out anew, on the whole way."""
    probe = Probe(server, ALICE)
    await probe.whole_way()
    role = {"apiGroup": "rbac.authorization.orch.io", "kind": "ClusterRole", "name": "view"}
    await server.make(BINDINGS, {"metadata": {"name": "other"}, "roleRef": role})

    after = probe.at_once()
    whole = await probe.whole_way()

    assert (after, whole.status) == (None, 200)
    assert probe.at_once() is not None


@pytest.mark.parametrize(
    "path", ["/version", "/api", "/metrics", "/.well-known/openid-configuration"]
)
async def test_other_pages_have_no_short_way(server: Api, path: str) -> None:
    """They may have to wait, and hardly anybody asks for them twice on a connection."""
    probe = Probe(server, ADMIN)

    assert (await probe.whole_way(path)).status == 200
    assert probe.at_once(path) is None


async def test_a_token_that_can_be_taken_back_goes_the_whole_way(server: Api) -> None:
    """An account may be deleted, and its token revoked."""
    await server.account("robot")
    probe = Probe(server, await server.token("robot"))

    assert (await probe.whole_way()).status == 200
    assert probe.at_once() is None


async def test_a_connection_with_a_certificate_goes_the_whole_way(server: Api) -> None:
    """The certificate is judged first, whatever else is presented."""
    probe = Probe(server, ADMIN)
    probe.peer = Peer("127.0.0.1:1", b"no certificate that anybody trusts")

    assert (await probe.whole_way()).status == 200
    assert probe.at_once() is None


async def test_whoever_acts_as_another_goes_the_whole_way(server: Api) -> None:
    """The right to act so may end, and the other has other rights."""
    probe = Probe(server, ADMIN, **{"impersonate-user": "somebody"})

    assert (await probe.whole_way("/livez")).status == 200
    assert probe.at_once("/livez") is None


async def test_a_wrong_token_never_has_a_short_way(server: Api) -> None:
    """Not even to a page that nobody in particular may see."""
    probe = Probe(server, "nobody-knows-this-token")

    assert (await probe.whole_way()).status == 401
    assert probe.at_once() is None


async def test_what_the_audit_policy_asks_for_is_recorded_each_time(
    server_files: Path, tmp_path: Path
) -> None:
    """With an audit log there is no short way."""
    record, policy = tmp_path / "audit.log", tmp_path / "policy.yaml"
    policy.write_text("apiVersion: audit.orch.io/v1\nkind: Policy\nrules: [{level: Metadata}]\n")
    audit = {"audit_log_path": str(record), "audit_policy_file": str(policy)}
    async with api(server_files, **audit) as server:
        probe = Probe(server, ADMIN)

        assert (await probe.whole_way()).status == 200
        assert probe.at_once() is None


async def test_a_check_that_fails_later_is_told(server: Api) -> None:
    """The answer is made anew each time: only the way to it is known."""
    probe = Probe(server, ALICE)
    await probe.whole_way("/readyz")
    before = probe.at_once("/readyz")
    server.server.stopping = True

    after = probe.at_once("/readyz")

    assert before is not None
    assert after is not None
    assert (before.status, after.status) == (200, 500)
    assert after.body.endswith(b"readyz check failed\n")


async def test_what_goes_wrong_is_told_by_the_whole_way(
    server: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The seat is given back, and nobody gets half an answer."""

    def broken() -> str:
        raise RuntimeError("the check itself is broken")

    probe = Probe(server, ALICE)
    await probe.whole_way()
    levels = server.server.fairness.levels.values()
    monkeypatch.setattr(server.server, "store_problem", broken)

    assert probe.at_once() is None
    assert sum(level.taken for level in levels) == 0
    assert (await probe.whole_way()).status == 500


async def test_a_caller_who_finds_no_seat_waits_on_the_whole_way(server: Api) -> None:
    """One check alone is no probe that is exempt from the limits."""
    probe = Probe(server, tokens_by_user()["system:node:worker-1"])
    role = {"metadata": {"name": "checks"}, "rules": [{"nonResourceURLs": ["*"], "verbs": ["get"]}]}
    await server.make("/apis/rbac.authorization.orch.io/v1/clusterroles", role)
    group = {"apiGroup": "rbac.authorization.orch.io", "kind": "Group", "name": "system:nodes"}
    ref = {"apiGroup": "rbac.authorization.orch.io", "kind": "ClusterRole", "name": "checks"}
    binding = {"metadata": {"name": "checks"}, "roleRef": ref, "subjects": [group]}
    await server.make(BINDINGS, binding)
    await probe.whole_way("/livez/ping")
    before = probe.at_once("/livez/ping")
    level = server.server.fairness.levels["system"]

    level.queued += 1  # somebody waits, and must not be overtaken
    during = probe.at_once("/livez/ping")
    level.queued -= 1

    assert before is not None
    assert during is None
    assert probe.at_once("/livez/ping") is not None


async def test_every_probe_is_counted(server: Api) -> None:
    """Requests, who was let in, and the requests that RBAC has allowed."""
    probe = Probe(server, ALICE)
    await probe.whole_way()
    for _ in range(4):
        assert probe.at_once() is not None

    page = (await server.call("GET", "/metrics")).text

    counted = [line for line in page.splitlines() if line.startswith("apiserver_request_total{")]
    assert any('subresource="/livez"' in line and line.endswith(" 5") for line in counted), counted
    decisions = [line for line in page.splitlines() if "authorization_decisions_total{" in line]
    assert any('decision="allowed"' in line and line.endswith(" 5") for line in decisions), (
        decisions
    )


async def test_a_clients_own_audit_id_is_kept(server: Api) -> None:
    """So that it finds its request again."""
    probe = Probe(server, ADMIN, **{"audit-id": "my-own"})
    await probe.whole_way()

    answer = probe.at_once()

    assert answer is not None
    assert answer.headers.startswith(b"Audit-Id: my-own\r\n")
