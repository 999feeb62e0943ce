"""Impersonation: each attribute needs its own right, however the headers are written.

Alice may act as the user bob and as the group dev, and as nobody else. Requests come as bytes, so
that letter case, repetition and folding of headers are what a client on the network can send.
"""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from orchid.kernel.http.messages import Peer
from orchid.kernel.http.reading.reader import RequestReader
from tests.api.world import ADMIN, ALICE, BOB, Answer, Api, api, parsed
from tests.unit.features.beside import MovingClock

SELF = "/apis/authentication.orch.io/v1/selfsubjectreviews"
RBAC = "/apis/rbac.authorization.orch.io/v1"


@pytest.fixture
async def server(server_files: Path, clock: MovingClock) -> AsyncIterator[Api]:
    async with api(server_files) as made:
        rules = [
            {"apiGroups": [""], "resources": [resource], "verbs": ["impersonate"], **names}
            for resource, names in {
                "users": {"resourceNames": ["bob"]},
                "groups": {"resourceNames": ["dev"]},
            }.items()
        ]
        group = {"apiGroup": "rbac.authorization.orch.io"}
        meta = {"metadata": {"name": "acts-as-bob"}}
        await made.make(f"{RBAC}/clusterroles", {**meta, "rules": rules})
        await made.make(
            f"{RBAC}/clusterrolebindings",
            {
                **meta,
                "roleRef": {"kind": "ClusterRole", "name": "acts-as-bob", **group},
                "subjects": [{"kind": "User", "name": "alice", **group}],
            },
        )
        yield made


async def sent(server: Api, *lines: str, token: str = ALICE, target: str = SELF) -> Answer:
    """Send header lines exactly as they are, through the reader of the listener."""
    reader = RequestReader(
        Peer("127.0.0.1:1"),
        max_header_bytes=1 << 20,
        max_headers=1000,
        max_body_bytes=1 << 20,
        request_timeout=60,
    )
    own = [f"Authorization: Bearer {token}"] if token else []
    head = [f"POST {target} HTTP/1.1", "Host: t", *own, "Content-Length: 2", *lines, "", "{}"]
    reader.feed("\r\n".join(head).encode("latin-1"))
    if reader.refusal:
        return Answer(reader.refusal, [], b"")
    answer: Any = await server.server.chain(reader.ready[0].request)
    return Answer(answer.status, parsed(answer.headers), answer.body)


PERMITTED = [
    ["Impersonate-User: bob"],
    ["impersonate-user: bob"],
    ["IMPERSONATE-USER: bob"],
    ["Impersonate-User:   bob  "],
    ["Impersonate-User: bob", "Impersonate-Group: dev"],
    ["iMPERSONATE-gROUP: dev", "Impersonate-User: bob", "impersonate-group: dev"],
]


async def test_what_alice_may_do_works_in_every_spelling(server: Api) -> None:
    """Letter case and blanks change nothing: she is bob, with nothing of her own."""
    for lines in PERMITTED:
        answer = await sent(server, *lines)

        assert answer.status == 201, lines
        user = answer.json["status"]["userInfo"]
        assert user["username"] == "bob", lines
        assert set(user["groups"]) <= {"dev", "system:authenticated"}, lines


FORBIDDEN = [
    ["Impersonate-User: root"],
    ["Impersonate-User: Bob"],
    ["Impersonate-User: b%6Fb"],
    ["Impersonate-User: bob, root"],
    ["Impersonate-User: system:node:n1"],
    ["Impersonate-User: system:serviceaccount:default:default"],
    ["Impersonate-User: bob", "Impersonate-Group: system:masters"],
    ["Impersonate-User: bob", "Impersonate-Group: system:nodes"],
    ["Impersonate-User: bob", "iMpErSoNaTe-GrOuP: system:masters"],
    ["Impersonate-User: bob", "Impersonate-Group: dev", "Impersonate-Group: system:masters"],
    ["Impersonate-User: bob", "Impersonate-Group: dev", "impersonate-group: system:nodes"],
    ["Impersonate-User: bob", "Impersonate-Group: dev,system:masters"],
    ["Impersonate-User: bob", "Impersonate-Group: system%3Amasters"],
    ["Impersonate-User: bob", "Impersonate-Group: SYSTEM:MASTERS"],
    ["Impersonate-User: bob", "Impersonate-Group:"],
    ["Impersonate-User: bob", "Impersonate-Group: system:authenticated"],
    ["Impersonate-User: bob", "Impersonate-Uid: 1"],
    ["Impersonate-User: bob", "IMPERSONATE-UID: 1"],
    ["Impersonate-User: bob", "Impersonate-Extra-Scopes: all"],
    ["Impersonate-User: bob", "impersonate-extra-a%2Fb: all"],
    ["Impersonate-User: bob", "Impersonate-Extra-: all"],
    ["Impersonate-User: bob", "Impersonate-Extra-%zz: all"],
]


async def test_one_attribute_without_the_right_is_enough_to_refuse(server: Api) -> None:
    """Other users, the groups system:masters and system:nodes, a uid, an extra: 403 each."""
    passed = [lines for lines in FORBIDDEN if (await sent(server, *lines)).status != 403]

    assert passed == []


USERLESS = [
    ["Impersonate-Group: dev"],
    ["Impersonate-User:", "Impersonate-Group: dev"],
    ["Impersonate-Uid: 1"],
    ["Impersonate-Extra-Scopes: all"],
]


async def test_attributes_without_a_user_are_refused_and_not_overlooked(server: Api) -> None:
    """Impersonation headers without a user do not add groups to the caller."""
    answers = [await sent(server, *lines) for lines in USERLESS]

    assert {answer.status for answer in answers} == {400}
    assert {answer.header("x-content-type-options") for answer in answers} == {"nosniff"}


ODD = [
    ["Impersonate-User: bob", "Impersonate-User: root"],
    ["Impersonate-User: bob", " root"],
    ["Impersonate-User : root"],
    ["Impersonate_User: root", "Impersonate_Group: system:masters"],
    ["X-Remote-User: root", "X-Remote-Group: system:masters"],
    ["Impersonate-User: bob\x00root"],
]


async def test_nobody_becomes_root_by_odd_headers(server: Api) -> None:
    """Repeated, folded, with a blank or an underscore: refused, or alice and bob as they are."""
    for lines in ODD:
        answer = await sent(server, *lines)

        assert answer.status in (201, 400, 403), lines
        if answer.status == 201:
            user = answer.json["status"]["userInfo"]
            assert user["username"] in ("alice", "bob"), lines
            assert "system:masters" not in user["groups"], lines


async def test_extra_keys_are_lowered_then_decoded(server: Api) -> None:
    """Two spellings are one key, so that no right is asked for by another name."""
    answer = await sent(
        server,
        "Impersonate-User: bob",
        "Impersonate-Extra-ACME.com%2FScope: a",
        "impersonate-extra-acme.com%2fscope: b",
        token=ADMIN,
    )

    assert answer.json["status"]["userInfo"]["extra"] == {"acme.com/scope": ["a", "b"]}


async def test_an_administrator_who_acts_as_bob_has_bobs_rights_only(server: Api) -> None:
    """Nothing of the caller carries over."""
    headers = {"impersonate-user": "bob"}
    answer = await server.call("GET", "/api/v1/secrets", headers=headers)

    assert answer.status == 403
    assert 'User \\"bob\\" cannot list' in answer.text


async def test_nobody_impersonates_without_being_somebody(server: Api) -> None:
    """Without credentials 401, and on an open path the anonymous have no right to."""
    headers = {"impersonate-user": "bob"}
    closed = await server.call("POST", SELF, {}, token=None, headers=headers)
    open_to_all = await server.call("GET", "/healthz", token=None, headers=headers)

    assert (closed.status, open_to_all.status) == (401, 403)


async def test_whom_one_acts_as_cannot_act_as_another(server: Api) -> None:
    """Impersonation is not chained: the rights that count are the caller's own."""
    headers = {"impersonate-user": "alice", "impersonate-group": "dev"}
    again = await sent(server, "Impersonate-User: alice", "Impersonate-User: bob", token=ADMIN)
    refused = await server.call("POST", SELF, {}, headers=headers, token=ALICE)

    assert again.json["status"]["userInfo"]["username"] == "alice"
    assert refused.status == 403


LIST_ACCOUNTS = "/api/v1/namespaces/ci/serviceaccounts"


async def constrain_bob(server: Api) -> None:
    """Bob may act as carol, but only to list service accounts."""
    authentication, group = "authentication.orch.io", {"apiGroup": "rbac.authorization.orch.io"}
    rules = [
        {
            "apiGroups": [authentication],
            "resources": ["users"],
            "resourceNames": ["carol"],
            "verbs": ["impersonate:user-info"],
        },
        {
            "apiGroups": [""],
            "resources": ["serviceaccounts"],
            "verbs": ["impersonate-on:user-info:list"],
        },
    ]
    meta = {"metadata": {"name": "lists-as-carol"}}
    bob = {"subjects": [{"kind": "User", "name": "bob", **group}]}
    await server.make(f"{RBAC}/clusterroles", {**meta, "rules": rules})
    role = {"roleRef": {"kind": "ClusterRole", "name": "lists-as-carol", **group}}
    await server.make(f"{RBAC}/clusterrolebindings", {**meta, **role, **bob})
    view = {"roleRef": {"kind": "ClusterRole", "name": "view", **group}}
    carol = {"subjects": [{"kind": "User", "name": "carol", **group}]}
    binding = {"metadata": {"name": "carol-views"}, **view, **carol}
    await server.make(f"{RBAC}/clusterrolebindings", binding)


async def test_a_constrained_right_opens_one_request_as_one_user(server: Api) -> None:
    """Bob gets none of carol's other rights, and cannot be anybody else."""
    await constrain_bob(server)
    carol = {"impersonate-user": "carol"}

    allowed = await server.call("GET", LIST_ACCOUNTS, token=BOB, headers=carol)
    refused = {
        "another verb": await server.call("GET", f"{LIST_ACCOUNTS}/x", token=BOB, headers=carol),
        "another resource": await server.call("GET", "/api/v1/pods", token=BOB, headers=carol),
        "another user": await server.call(
            "GET", LIST_ACCOUNTS, token=BOB, headers={"impersonate-user": "admin"}
        ),
        "another group": await server.call(
            "GET", LIST_ACCOUNTS, token=BOB, headers={**carol, "impersonate-group": "dev"}
        ),
    }

    assert allowed.status == 200
    assert {what: answer.status for what, answer in refused.items()} == dict.fromkeys(refused, 403)
    assert refused["another verb"].json["message"] == (
        'users "carol" is forbidden: User "bob" cannot impersonate resource "users" in API '
        'group "" at the cluster scope'
    )
