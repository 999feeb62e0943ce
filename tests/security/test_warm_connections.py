"""A connection on which a caller is known by now: whatever ends the credential ends it at once.

The same headers are not read again (kernel/http/reading/reader.py), and who sent them is
remembered beside them (kernel/access/authenticators/union.py). Here the credential is ended in
every way there is, and the very next request has to feel it. tests/e2e/test_fresh_rights.py tries
the same with workers.
"""

from collections.abc import Awaitable, Callable
from datetime import timedelta

import pytest

from orchid.features.accounts.account_tokens import AccountTokens
from orchid.features.accounts.authenticators.service_account_token import issuer_keys
from orchid.kernel.credentials.keys import generate
from orchid.kernel.credentials.tokens import KeySet
from orchid.kernel.http.messages import HeadMemo, HttpRequest, Peer
from tests.api.world import ADMIN, ISSUER, Api
from tests.unit.features.beside import MovingClock
from tests.unit.kernel.http.readers import new_reader

DEFAULT = "/api/v1/namespaces/default"
ROBOT = f"{DEFAULT}/serviceaccounts/robot"
REVOCATIONS = "/apis/identity.orch.io/v1alpha1/credentialrevocations"
GROUP = "rbac.authorization.orch.io"
RBAC = f"/apis/{GROUP}/v1/namespaces/default"
WHO = b"/apis/authentication.orch.io/v1/selfsubjectreviews"
POD = {"serviceAccountName": "robot", "containers": [{"name": "c", "image": "i"}]}


class Warm:
    """Requests with the same headers on one connection, as the reader hands them on."""

    def __init__(self, server: Api, token: str, peer: Peer | None = None) -> None:
        self._chain = server.server.chain
        self._headers = {"authorization": f"Bearer {token}"}
        self._peer = peer or Peer("127.0.0.1:1")
        self._memo = HeadMemo()

    @property
    def knows(self) -> bool:
        """Whether the caller is cached."""
        return self._memo.caller is not None

    async def status(self, path: str = "/version") -> int:
        request = HttpRequest("GET", path, path, "", self._headers, self._peer, memo=self._memo)
        answer = await self._chain(request)
        return int(answer.status)


async def deleted(server: Api, path: str) -> None:
    answer = await server.call("DELETE", path)
    assert answer.status == 200, answer.text


async def account_deleted(server: Api, _clock: MovingClock) -> None:
    await deleted(server, ROBOT)


async def account_recreated(server: Api, _clock: MovingClock) -> None:
    await deleted(server, ROBOT)
    await server.account("robot")


async def expired(_server: Api, clock: MovingClock) -> None:
    clock.ahead = timedelta(seconds=700)


async def key_removed(server: Api, _clock: MovingClock) -> None:
    verifier = server.server.context.port(AccountTokens).verifier
    others = KeySet([generate().public])
    verifier.replace_issuers(issuer_keys((ISSUER,), others, server.server.settings.naming))


async def account_revoked(server: Api, _clock: MovingClock) -> None:
    spec = {"account": {"namespace": "default", "name": "robot"}, "reason": "keyCompromise"}
    await server.make(REVOCATIONS, {"metadata": {"name": "r"}, "spec": spec})


async def deleted_long_ago(server: Api, clock: MovingClock) -> None:
    """A finalizer holds the account; a minute after its deletion its tokens are over."""
    finalizers = [{"op": "add", "path": "/metadata/finalizers", "value": ["example.com/f"]}]
    patch = {"content-type": "application/json-patch+json"}
    answer = await server.call("PATCH", ROBOT, finalizers, headers=patch)
    assert answer.status == 200, answer.text
    await deleted(server, ROBOT)
    clock.ahead = timedelta(seconds=90)


Ending = Callable[[Api, MovingClock], Awaitable[None]]
ENDINGS: tuple[Ending, ...] = (
    account_deleted,
    account_recreated,
    expired,
    key_removed,
    account_revoked,
    deleted_long_ago,
)


@pytest.mark.parametrize("end", ENDINGS)
async def test_a_token_that_is_ended_is_refused_in_the_next_request(
    server: Api, clock: MovingClock, end: Ending
) -> None:
    """The account, the time, the key and the revocation are looked at in each request."""
    await server.account("robot")
    warm = Warm(server, await server.token("robot", expirationSeconds=600))
    before = [await warm.status(), await warm.status()]
    was_kept = warm.knows

    await end(server, clock)
    after = [await warm.status(), await warm.status()]

    assert (before, was_kept, after) == ([200, 200], True, [401, 401])


@pytest.mark.parametrize("kind", ["Secret", "Pod", "Node"])
async def test_a_bound_token_ends_with_what_it_is_bound_to(server: Api, kind: str) -> None:
    """Also where the connection has known its holder for long."""
    await server.account("robot")
    place = "/api/v1/nodes" if kind == "Node" else f"{DEFAULT}/{kind.lower()}s"
    bound = {"metadata": {"name": "b"}} | ({"spec": POD} if kind == "Pod" else {})
    await server.make(place, bound)
    reference = {"kind": kind, "apiVersion": "v1", "name": "b"}
    warm = Warm(server, await server.token("robot", boundObjectRef=reference))
    before = [await warm.status(), await warm.status()]
    was_kept = warm.knows

    await deleted(server, f"{place}/b?gracePeriodSeconds=0")

    assert (before, was_kept, await warm.status()) == ([200, 200], True, 401)


async def test_a_static_token_is_known_as_long_as_the_server_runs(server: Api) -> None:
    """Its file is read at start alone, so nothing can end it before."""
    warm = Warm(server, ADMIN)

    assert [await warm.status(), await warm.status()] == [200, 200]
    assert warm.knows


@pytest.mark.parametrize("path", ["/version", "/livez"])
async def test_unknown_callers_leave_nothing_behind(server: Api, path: str) -> None:
    """Only authenticated callers are cached; refused and anonymous ones are not."""
    warm = Warm(server, "nobody-knows-this-token")
    statuses = [await warm.status(path), await warm.status(path)]

    assert (statuses, warm.knows) == ([401, 401], False)


async def test_a_certificate_on_the_connection_keeps_the_caller_from_being_remembered(
    server: Api,
) -> None:
    """The certificate is checked first, and has a separate cache."""
    warm = Warm(server, ADMIN, Peer("127.0.0.1:1", b"no certificate that anybody trusts"))

    assert [await warm.status(), await warm.status()] == [200, 200]
    assert not warm.knows


@pytest.mark.parametrize("apart", [False, True])
async def test_a_cached_head_with_another_body_counts_no_longer_than_its_token(
    server: Api, apart: bool
) -> None:
    """Bodies differ in length and arrive after the head; the caller is checked each time."""
    await server.account("robot")
    token = (await server.token("robot")).encode()
    reader = new_reader()

    async def status(body: bytes) -> int:
        head = (
            b"POST %b HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer %b\r\nContent-Length: %d\r\n\r\n"
        )
        sent = head % (WHO, token, len(body))
        for piece in (sent, body) if apart else (sent + body,):
            reader.feed(piece)
        request = reader.ready.pop().request
        assert request.body == body
        return int((await server.server.chain(request)).status)

    before = [await status(b"{}".ljust(length)) for length in range(2, 8)]
    await deleted(server, ROBOT)

    assert (before, await status(b"{}".ljust(9))) == ([201] * 6, 401)


@pytest.mark.parametrize("removed", ["rolebindings", "roles"])
async def test_a_right_ends_with_its_binding_or_role(server: Api, removed: str) -> None:
    """Also where other objects were written in between, which change no right."""
    await server.account("robot")
    rule = {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list"]}
    await server.make(f"{RBAC}/roles", {"metadata": {"name": "r"}, "rules": [rule]})
    role = {"apiGroup": GROUP, "kind": "Role", "name": "r"}
    subject = {"kind": "ServiceAccount", "namespace": "default", "name": "robot"}
    binding = {"metadata": {"name": "r"}, "roleRef": role, "subjects": [subject]}
    await server.make(f"{RBAC}/rolebindings", binding)
    warm = Warm(server, await server.token("robot"))

    before = [await warm.status(f"{DEFAULT}/configmaps") for _ in range(3)]
    await server.account("another")
    before.append(await warm.status(f"{DEFAULT}/configmaps"))
    await deleted(server, f"{RBAC}/{removed}/r")

    assert (before, await warm.status(f"{DEFAULT}/configmaps")) == ([200] * 4, 403)
