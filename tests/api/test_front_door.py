"""Information and state that a caller without rights can neither get nor leave behind."""

from orchid.kernel.http.messages import Peer
from tests.api.world import ADMIN, BOB, Api

SA = "/api/v1/namespaces/default/serviceaccounts"
REVIEW = "/apis/authentication.orch.io/v1/selfsubjectreviews"


async def test_every_request_is_authenticated_separately(server: Api) -> None:
    """On one connection, the credential of each request counts, not that of an earlier one."""
    peer = Peer("127.0.0.1:1")
    statuses = [
        (await server.call("GET", SA, token=token, peer=peer)).status
        for token in (ADMIN, None, BOB, "wrong", ADMIN)
    ]

    assert statuses == [200, 401, 403, 401, 200]


async def test_nobody_learns_what_exists_without_the_right_to_see_it(server: Api) -> None:
    """Existing and missing objects are refused in the same words, as are kinds and paths."""
    await server.account("there")
    for sub in ("", "/token", "/nothing"):
        there = await server.call("GET", f"{SA}/there{sub}", token=BOB)
        gone = await server.call("GET", f"{SA}/other{sub}", token=BOB)
        assert there.status == gone.status == 403
        assert there.text.replace("there", "other") == gone.text
    for target in ("/api/v1/serviceaccounts", "/api/v1/unheardof", "/apis/no.group/v1/x"):
        assert (await server.call("GET", target, token=BOB)).status == 403


async def test_refused_requests_leave_nothing_behind(server: Api) -> None:
    """Neither the unknown, the unentitled nor the mistaken make a namespace or anything else."""
    before = await server.server.store.revision()
    target = "/api/v1/namespaces/new/serviceaccounts"
    good = {"metadata": {"name": "a"}}
    for token in (None, "wrong", BOB):
        await server.call("POST", target, good, token=token)
    for body in ({}, {"metadata": {"name": "A"}}, {"metadata": {"name": 1}}, b"{"):
        await server.call("POST", target, body)
    await server.call("POST", f"{target}?dryRun=All", good)
    await server.call("POST", f"{target}?dryRun=Some", good)
    await server.call("PUT", f"{target}/a", good)
    await server.call("DELETE", f"{target}/a")

    assert await server.server.store.revision() == before
    assert (await server.call("GET", "/api/v1/namespaces/new")).status == 404


async def test_a_deleted_account_is_out_at_once(server: Api) -> None:
    """The very next request with its token is a 401, and a new account of its name is another."""
    await server.account("robot")
    token = await server.token("robot")
    assert (await server.call("POST", REVIEW, {}, token=token)).status == 201
    await server.call("DELETE", f"{SA}/robot")
    assert (await server.call("POST", REVIEW, {}, token=token)).status == 401
    await server.call("POST", SA, {"metadata": {"name": "robot"}})
    assert (await server.call("POST", REVIEW, {}, token=token)).status == 401


async def test_answers_are_never_redirects(server: Api) -> None:
    """Nobody is sent elsewhere with their credentials."""
    for target in ("//evil.test/api", "/api/../..//evil.test", "/\\evil.test", "/api/v1//evil"):
        answer = await server.call("GET", target)
        assert not 300 <= answer.status < 400
        assert answer.header("location") is None
