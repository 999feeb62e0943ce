"""Ending the credentials of a host: every one of them, in an order, and of no other host."""

import base64
from collections.abc import Iterator
from typing import Any

import pytest

from orchid.features.hosts.commands import host_credentials
from orchid.features.hosts.commands.host_credentials import end_credentials
from orchid.kernel.terminal.connection import CommandRefused
from orchid.kernel.wire.naming import ORCH
from tests.unit.kernel.terminal.api_server import PAST, ApiServer, record

HOST, OTHER = "web-1", "web-10"
SECRETS = f"secrets?type={ORCH.bootstrap_token_type}"


def join_token(name: str, host: str) -> dict[str, Any]:
    data = {"node-name": base64.b64encode(host.encode()).decode()} if host else {}
    return {"metadata": {"name": name}, "data": data}


def request(name: str, user: str, certificate: str = "", **extra: list[str]) -> dict[str, Any]:
    spec = {"username": user, "extra": extra}
    return {"metadata": {"name": name}, "spec": spec, "status": {"certificate": certificate}}


def server_of(*requests: dict[str, Any]) -> Any:
    server = ApiServer()
    server.lists[SECRETS] = [join_token("t1", HOST), join_token("t2", OTHER), join_token("t3", "")]
    server.lists["certificatesigningrequests"] = list(requests)
    return server


def ended(server: Any, *rounds: list[dict[str, Any]]) -> tuple[int, int]:
    """With the certificates that each round finds; the last one again and again."""
    found = list(rounds)

    def records_of(_server: Any, host: str) -> Iterator[dict[str, Any]]:
        assert host == HOST
        if "certificatesigningrequests" in server.lists and len(found) < len(rounds):
            server.lists["certificatesigningrequests"] = []
        return iter(found.pop(0) if len(found) > 1 else found[0])

    return end_credentials(server, HOST, "keyCompromise", "stolen", records_of)


def changes(server: Any) -> list[str]:
    """Deletions by name, revocations by their target."""
    return [
        name if method == "delete" else str(next(iter(body["spec"].values())))
        for method, name, body in server.changes
    ]


def test_tokens_and_the_user_come_first() -> None:
    """What was issued until then can request nothing more."""
    server = server_of()

    assert ended(server, [record("a1")]) == (1, 1)
    assert changes(server)[:2] == ["t1", "{'username': 'system:node:web-1'}"]
    assert "'serialNumber': 'a1'" in changes(server)[2]
    spec = server.changes[2][2]["spec"]
    assert (spec["reason"], spec["message"]) == ("keyCompromise", "stolen")


def test_a_certificate_that_appears_meanwhile_is_revoked_too() -> None:
    """And the user once more, until nothing new is found; each certificate once."""
    server = server_of()

    assert ended(server, [record("a1")], [record("a1"), record("b2")]) == (2, 1)
    made = changes(server)
    assert sum("a1" in one for one in made) == sum("b2" in one for one in made) == 1
    assert sum("system:node:web-1" in one for one in made) == 3


def test_a_revocation_that_is_repeated_on_purpose_prints_no_warning() -> None:
    """The server warns that the user is revoked already: by this command."""
    server = server_of()

    ended(server, [record("a1")], [record("a1"), record("b2")])

    assert server.warned == 0


def test_every_join_token_and_request_of_a_host_is_ended() -> None:
    """Not the first alone."""
    user = "system:node:web-1"
    server = server_of(request("r1", user), request("r2", user))
    server.lists[SECRETS] += [join_token("t4", HOST)]

    assert ended(server, [record("a1"), record("b2")], []) == (2, 2)
    assert {"t1", "t4", "r1", "r2"} <= set(changes(server))


def test_certificates_that_have_ended_are_left() -> None:
    server = server_of()

    assert ended(server, [record("a1", notAfter=PAST), record("b2", cluster="prod")]) == (0, 1)


@pytest.mark.parametrize(
    ("found", "is_deleted"),
    [
        (request("r", "system:node:web-1"), True),
        (request("r", "jane", **{ORCH.bound_node_name: [HOST]}), True),
        (request("r", "jane", **{ORCH.node_name_extra: [HOST]}), True),
        (request("r", "system:node:web-1", certificate="pem"), False),
        (request("r", "system:node:web-10"), False),
        (request("r", "web-1"), False),
        (request("r", "jane", **{ORCH.bound_node_name: [OTHER]}), False),
        (request("r", "jane", other=[HOST]), False),
    ],
)
def test_requests_without_a_certificate_are_deleted(
    found: dict[str, Any], *, is_deleted: bool
) -> None:
    """Of the host, its join tokens and the accounts placed on it; a decision would come later."""
    assert bool(host_credentials.requests_of(server_of(found), HOST)) == is_deleted


def test_a_request_is_deleted_and_what_was_issued_for_another_revoked() -> None:
    server = server_of(request("r1", "system:node:web-1"))

    assert ended(server, [], [record("a1")]) == (1, 1)
    assert "r1" in changes(server)


def test_what_is_gone_already_is_no_failure() -> None:
    """Any other refusal is one: a credential is left."""
    server = server_of()
    server.refusals["delete t1"] = CommandRefused(404, "gone")
    assert ended(server, []) == (0, 1)

    server.refusals["delete t1"] = CommandRefused(403, "no")
    with pytest.raises(CommandRefused):
        ended(server, [])


@pytest.mark.parametrize(
    ("refusal", "ends"),
    [
        (CommandRefused(409, "covered", "user-x"), True),
        (CommandRefused(409, "conflict"), False),
        (CommandRefused(403, "no", "user-x"), False),
    ],
)
def test_a_revocation_that_exists_is_enough(refusal: CommandRefused, *, ends: bool) -> None:
    server = server_of()
    server.refusals["post credentialrevocations"] = refusal

    if ends:
        assert ended(server, []) == (0, 1)
    else:
        with pytest.raises(CommandRefused):
            ended(server, [])


def test_join_tokens_are_those_that_name_a_host() -> None:
    """None for a caller who may not read them; any other failure is one."""
    server = server_of()
    assert [host for host, _ in host_credentials.join_tokens(server)] == [HOST, OTHER]

    server.refusals["items secrets"] = CommandRefused(403, "no")
    assert host_credentials.join_tokens(server) == []
    server.refusals["items secrets"] = CommandRefused(500, "broken")
    with pytest.raises(CommandRefused):
        host_credentials.join_tokens(server)


def test_the_certificates_of_a_host_are_its_own_and_those_it_requested() -> None:
    server: Any = server_of()
    user = "system:node:web-1"
    own = f"issuedcertificates?spec.signerName={ORCH.node_client_signer}"
    server.lists[own] = [record("a1", username=user), record("b2", username="system:node:web-10")]
    server.lists[f"issuedcertificates?spec.requester.username={user}"] = [record("c3")]
    server.lists[f"issuedcertificates?spec.requester.nodeName={HOST}"] = [record("d4")]

    found = [one["metadata"]["name"] for one in host_credentials.all_of(server, HOST)]

    assert found == ["a1", "c3", "d4"]
