"""Authorities, bundles, policies, accounts, the overview and health: what each page shows."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import Encoding

from orchid.features.console.api import Refused
from orchid.features.console.page import Retry, Shown, Viewer
from orchid.features.console.pages import accounts, authorities, overview, policies, server
from orchid.kernel.wire.naming import ORCH
from tests.unit.features.console.pages.asked import (
    IDENTITY,
    REQUESTS,
    SEARCHES,
    Server,
    object_of,
    visit,
)
from tests.unit.kernel.credentials import chains

ROOT = chains.ROOT.public_bytes(Encoding.PEM).decode()
AUTHORITIES = f"{IDENTITY}/certificateauthorities"
POLICIES = f"{IDENTITY}/approvalpolicies"


def moment(days: float) -> str:
    return (datetime.now(UTC) + timedelta(days=days)).isoformat()


def ready(status: str = "True", **fields: str) -> Any:
    return {"conditions": [{"type": "Ready", "status": status, **fields}]}


# -- authorities ------------------------------------------------------------------------------


async def test_authorities_are_listed_by_their_end() -> None:
    """With their signers, and why one is not ready."""
    api = Server()
    api.listed(
        AUTHORITIES,
        object_of(
            "later",
            spec={"signerNames": ["a", "b"], "issues": {"names": ["dns"]}},
            status={**ready("False", message="no key"), "notAfter": moment(9)},
        ),
        object_of(
            "sooner",
            spec={"signerName": "s"},
            status={**ready(), "notAfter": moment(3), "keys": [{"name": "k"}]},
        ),
        object_of("new"),
    )

    new, sooner, later = (await authorities.read_list(visit(api)))["found"].value

    assert [row["name"] for row in (new, sooner, later)] == ["new", "sooner", "later"]
    assert (later["signer"], later["signers"]) == ("a, b", ["a", "b"])
    assert (later["ready"], later["reason"]) == (False, "no key")
    assert later["issues"] == {"names": ["dns"]}
    assert (sooner["signer"], sooner["ready"], sooner["signing_keys"]) == (
        "s",
        True,
        [{"name": "k"}],
    )
    assert (new["signer"], new["life"]["used"], new["certificate"]) == ("", 0, None)


async def test_the_life_of_an_authority_is_that_of_its_certificate() -> None:
    row = authorities.authority_row(object_of("web", status={"certificate": ROOT}))

    assert row["certificate"].subject == "CN=ca"
    assert row["life"]["ends"] == row["certificate"].not_after
    assert row["life"]["ended"]


async def test_an_authority_has_some_of_its_lists_and_certificates() -> None:
    api = Server()
    keys = [{"name": f"k{number}", "revocationList": f"l{number}"} for number in range(5)]
    keys[1]["revocationList"] = ""
    stored = object_of("web", spec={"signerName": "s"}, status={**ready(), "keys": keys})
    api.get(f"{AUTHORITIES}/web", stored)
    api.searched(matches=7)

    values = await authorities.read_one(visit(api, names={"name": "web"}))

    shown = [{"name": f"l{number}.crl", "problem": "it cannot be read"} for number in (0, 2)]
    assert values["lists"].value == shown
    assert values["counted"].value["matches"] == 7
    assert values["conditions"] == stored["status"]["conditions"]
    assert api.sent("POST")[0]["spec"] == {"signerNames": ["s"], "state": "Live", "limit": 5}


async def test_bundles_show_their_roots_and_consumers() -> None:
    api = Server()
    spec = {"signerName": "s", "trustBundle": ROOT}
    api.listed(f"/apis/{ORCH.certificates}/v1beta1/clustertrustbundles", object_of("b", spec=spec))
    status = {
        **ready(),
        "consumers": {"current": 5, "behind": 2},
        "editions": [{"sequence": 9}, {"sequence": 8}],
    }
    api.listed(f"{IDENTITY}/publishedbundles", object_of("web", status=status), object_of("new"))

    values = await authorities.read_bundles(visit(api))

    ((bundle,), (web, new)) = values["bundles"].value, values["published"].value
    assert (bundle["name"], bundle["signer"]) == ("b", "s")
    assert [root["subject"] for root in bundle["roots"]] == ["CN=ca"]
    assert web == {"name": "web", "ready": True, "sequence": 9, "current": 5, "behind": 2}
    assert new == {"name": "new", "ready": False, "sequence": "", "current": 0, "behind": 0}


# -- policies ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "is_ready", "reason"),
    [(None, True, ""), (ready(), True, ""), (ready("False", message="bad"), False, "bad")],
)
async def test_a_policy_is_ready_unless_it_says_otherwise(
    status: Any, is_ready: bool, reason: str
) -> None:
    api = Server()
    spec = {"signerNames": ["s"], "otherwise": "Deny", "rules": [{"name": "r"}]}
    one = object_of("web", spec=spec, status=status)
    api.listed(POLICIES, one)
    api.get(f"{POLICIES}/web", one)

    (row,) = (await policies.read_list(visit(api)))["found"].value
    values = await policies.read_one(visit(api, names={"name": "web"}))

    assert row == values["row"]
    assert row == {
        "name": "web",
        "signers": ["s"],
        "otherwise": "Deny",
        "ready": is_ready,
        "reason": reason,
    }
    assert (values["name"], values["rules"], values["tried"]) == ("web", [{"name": "r"}], None)
    assert values["yaml"].startswith("signerNames:\n- s\notherwise: Deny\n")


def test_a_policy_is_said_in_sentences() -> None:
    spec = {
        "signerNames": ["a", "b"],
        "requesters": {"users": ["bob"], "namespace": "ci"},
        "allows": {"names": ["x", "y"], "maxDuration": "24h"},
        "otherwise": "Deny",
    }

    assert policies.sentences_of(spec) == [
        "It is for requests to a, b.",
        "The requester must match namespace: ci.",
        "The requester must match users: bob.",
        "It allows maxDuration: 24h.",
        "It allows names: x, y.",
        "Requests that it selects and does not allow: it denies them.",
    ]
    assert policies.sentences_of({}) == [
        "It is for requests to no signer.",
        "Requests that it selects and does not allow: it leaves them to a person.",
    ]


async def tried(**form: str) -> tuple[Any, Any]:
    api = Server()
    api.on("POST", f"{IDENTITY}/approvalreviews", {"status": {"approved": True}})
    done = await policies.attempt(visit(api, form={"policy": "spec: {a: 1}", **form}))
    return done, next(iter(api.sent("POST")), None)


async def test_a_policy_is_tried_with_a_stored_request_or_a_pasted_one() -> None:
    """As another user, if one is named."""
    done, stored = await tried(request=" web ", pem="x")
    _, pasted = await tried(pem="x", signer=" s ", usages="a,, b ", policy="a: 1")
    _, other = await tried(request="web", user="bob", groups="x, y")

    assert done == Shown({"tried": {"approved": True}, "yaml": "spec: {a: 1}"})
    assert stored["spec"] == {"policy": {"a": 1}, "requestName": "web"}
    expected = {"policy": {"a": 1}, "request": "eA==", "signerName": "s", "usages": ["a", "b"]}
    assert pasted["spec"] == expected
    assert other["spec"]["user"] == {"username": "bob", "groups": ["x", "y"]}


@pytest.mark.parametrize(
    ("form", "problem"),
    [
        ({"policy": "x" * (64 * 1024 + 1), "request": "web"}, "too long"),
        ({"policy": "{", "request": "web"}, "cannot be read"),
        ({"policy": "- a", "request": "web"}, "not a YAML object"),
        ({"request": " ", "pem": " "}, "Name a stored request"),
    ],
)
async def test_each_refusal_of_a_try(form: dict[str, str], problem: str) -> None:
    done, sent = await tried(**form)

    assert isinstance(done, Retry)
    assert problem in done.problem
    assert (done.status, sent) == (400, None)


# -- accounts ---------------------------------------------------------------------------------


async def test_accounts_are_found_by_a_part_of_their_names() -> None:
    api = Server()
    names = [("ci", "robot"), ("ci", "Builder"), ("bi", "z")]
    api.listed(
        "/api/v1/serviceaccounts",
        *(object_of(name, "t", metadata={"namespace": space}) for space, name in names),
    )

    async def found(text: str) -> list[tuple[str, str]]:
        page = (await accounts.read_list(visit(api, query={"q": text})))["found"].value
        return [(row["namespace"], row["name"]) for row in page["rows"]]

    assert await found("") == [("bi", "z"), ("ci", "Builder"), ("ci", "robot")]
    assert await found(" ci/BU ") == [("ci", "Builder")]
    assert await found("x") == []


async def test_an_account_shows_its_own_secrets() -> None:
    """Those with its uid, and when each was used."""
    api = Server()
    notes = {"b": "2", "a": "1"}
    meta = {"uid": "u1", "annotations": notes, "namespace": "ci"}
    api.get(accounts.account_path("ci", "robot"), object_of("robot", "t", metadata=meta))

    def secret(name: str, uid: str) -> Any:
        labels = {ORCH.last_used_label: "2026-01-01"}
        annotations = {ORCH.account_uid_annotation: uid}
        return object_of(name, "t", metadata={"annotations": annotations, "labels": labels})

    stored = (secret("s2", "u1"), secret("s1", "u1"), secret("other", "u2"), object_of("plain"))
    api.listed("/api/v1/namespaces/ci/secrets", *stored)
    for path in ("clusterroles", "roles", "clusterrolebindings", "rolebindings"):
        api.listed(f"/apis/{ORCH.rbac}/v1/{path}")
    api.get("/ledger/key", {"details": {"kind": "ledger"}, "message": "no"}, 403)

    values = await accounts.read_one(visit(api, names={"namespace": "ci", "name": "robot"}))

    assert values["secrets"].value == [
        {"name": "s1", "created": "t", "used": "2026-01-01"},
        {"name": "s2", "created": "t", "used": "2026-01-01"},
    ]
    assert (values["namespace"], values["name"], values["uid"]) == ("ci", "robot", "u1")
    assert values["annotations"] == [("a", "1"), ("b", "2")]
    assert values["created"] == "t"
    assert values["issuers"].value == []
    assert values["tokens"].command == "orchid grant ledger-viewer --user ann"
    selected = [sent for verb, path, sent in api.calls if path.endswith("/secrets")]
    assert selected == [{"fieldSelector": f"type={ORCH.token_secret_type}", "limit": "500"}]


# -- overview and health ----------------------------------------------------------------------


async def test_the_overview_has_what_needs_a_person() -> None:
    api = Server()
    api.listed(REQUESTS, field="rows", columnDefinitions=[])
    api.searched({"name": "a1"})
    late = {**ready(), "certificate": ROOT}
    early = {**ready(), "notAfter": moment(9)}
    api.listed(
        AUTHORITIES,
        object_of("late", status=late),
        object_of("broken", status=ready("False")),
        object_of("good", status=early),
    )
    made = [object_of(f"r{number}", f"2026-01-0{number}") for number in range(1, 8)]
    api.listed(f"{IDENTITY}/credentialrevocations", *made)
    api.get("/readyz", b"[+]ping ok\n[-]etcd failed: reason\nreadyz check failed\n", 500)

    values = {name: part.value for name, part in (await overview.read(visit(api))).items()}

    assert [row["name"] for row in values["authorities"]] == ["late", "broken"]
    assert [row["name"] for row in values["revocations"]["rows"]] == ["r7", "r6", "r5", "r4", "r3"]
    assert values["revocations"]["has_more"] is False
    assert values["waiting"]["total"] == 0
    assert values["ready"] == {
        "ready": False,
        "checks": [{"name": "ping", "passed": True}, {"name": "etcd", "passed": False}],
        "failing": ["etcd"],
        "status": 500,
    }
    (sent,) = [body["spec"] for verb, path, body in api.calls if path == SEARCHES]
    assert sent == {
        "endsWithin": "720h",
        "omitReplaced": True,
        "state": "Live",
        "sort": "end",
        "limit": 5,
    }


METRICS = """orchid_certificate_end_seconds{certificate="serving"} 1800000000
orchid_certificate_end_seconds{certificate="ca"} 1700000000
orchid_ledger_rolled_back %d
orchid_ledger_oldest_pending_seconds %s
"""


@pytest.mark.parametrize(
    ("back", "wait", "problem"),
    [(0, "0", ""), (0, "60", ""), (0, "61.5", "more than a minute"), (1, "0", "rolled back")],
)
async def test_health_shows_ends_and_the_ledger(back: int, wait: str, problem: str) -> None:
    api = Server()
    api.get("/metrics", (METRICS % (back, wait)).encode())

    values = await server._metrics(visit(api))

    assert [row["name"] for row in values["ends"]] == ["ca", "serving"]
    assert problem in values["ledger"]
    assert bool(problem) == bool(values["ledger"])


async def test_health_lists_objects_that_are_not_ready_and_servers() -> None:
    api = Server()
    api.get("/readyz", b"[+]ping ok\n")
    api.get("/version", {"gitVersion": "v1"})
    api.get("/metrics", b"", 403)
    api.listed(
        AUTHORITIES,
        object_of("web", status=ready("False", message="no key", reason="NoKey")),
        object_of("new"),
    )
    api.listed(
        POLICIES,
        object_of("p", status=ready("False", reason="Bad")),
        object_of("q", status=ready()),
    )
    api.listed(f"{IDENTITY}/publishedbundles", object_of("b", status=ready("False")))
    space = ORCH.system_namespace
    fresh = {"holderIdentity": "h", "renewTime": moment(0)}
    api.listed(
        f"/apis/{ORCH.group('coordination')}/v1/namespaces/{space}/leases",
        object_of("z", spec=fresh),
        object_of("a", spec={"renewTime": moment(-1)}),
    )

    values = await server.read_health(visit(api))

    rows = [(row["name"], row["target"], row["why"]) for row in values["problems"].value]
    assert rows == [
        ("web", "/console/authorities/web", "no key"),
        ("p", "/console/policies/p", "Bad"),
        ("b", "/console/bundles", ""),
    ]
    alive = [(row["name"], row["holder"], row["alive"]) for row in values["servers"].value]
    assert alive == [("a", "", False), ("z", "h", True)]
    assert values["ready"].value["ready"]
    assert values["version"].value == {"gitVersion": "v1"}
    assert "metrics" in values["metrics"].refusal


async def test_a_broken_page_of_metrics_is_no_missing_right() -> None:
    api = Server()
    api.get("/metrics", b"", 500)

    with pytest.raises(Refused) as refusal:
        await server._metrics(visit(api))
    assert refusal.value.status == 500


async def test_you_are_shown_with_your_credential_and_sessions() -> None:
    async def sessions() -> list[dict[str, Any]]:
        return [{"name": "s"}]

    api: Any = Server()
    user = {"extra": {"x.io/credential-id": ["JTI=1"], "x.io/a": ["1"]}}
    viewer = Viewer(api, api, "https://server", sessions=sessions)

    served = await server.read_you(visit(api, user=user, viewer=viewer))
    local = await server.read_you(visit(api, user={"username": "ann"}))

    assert served == {
        "credential": ["JTI=1"],
        "extra": [("x.io/a", ["1"])],
        "sessions": [{"name": "s"}],
    }
    assert local == {"credential": [], "extra": [], "sessions": []}
