"""Revocations: their targets, the servers that apply them, and the lifting of a hold."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from orchid.features.console.api import Refused
from orchid.features.console.page import Retry, Succeeded
from orchid.features.console.pages import revocations
from orchid.features.console.pages.revocations import lease_is_live, lift, revocation_row, target_of
from orchid.kernel.wire.naming import ORCH
from tests.unit.features.console.pages.asked import IDENTITY, Server, object_of, visit

REVOCATIONS = f"{IDENTITY}/credentialrevocations"
EFFECTIVE = {"conditions": [{"type": "Effective", "status": "True"}]}


@pytest.mark.parametrize(
    ("spec", "target"),
    [
        ({"certificate": {"serialNumber": "a1", "sha256": "f"}}, ("certificate", "a1")),
        ({"certificate": {"sha256": "f"}}, ("certificate", "f")),
        ({"token": {"jti": "7"}}, ("token", "7")),
        ({"account": {"namespace": "ci", "name": "robot"}}, ("account", "ci/robot")),
        ({"key": {"name": "k"}}, ("key", "k")),
        ({"user": {"username": "bob"}}, ("user", "bob")),
        ({"authority": {"signerName": "s"}}, ("authority", "s")),
        ({}, ("authority", "")),
    ],
)
def test_each_target(spec: Any, target: tuple[str, str]) -> None:
    assert target_of({"spec": spec}) == target


@pytest.mark.parametrize(
    ("spec", "can_lift"),
    [
        ({"token": {"jti": "7"}, "reason": "certificateHold"}, True),
        ({"token": {"jti": "7"}, "reason": "superseded"}, False),
        ({"user": {"username": "bob"}}, True),
        ({"account": {"namespace": "ci", "name": "r"}}, False),
        ({"account": {"namespace": "ci", "name": "r"}, "cluster": "prod"}, True),
        ({"token": {"jti": "7"}, "cluster": "prod"}, False),
    ],
)
def test_what_can_be_lifted(spec: Any, can_lift: bool) -> None:
    row = revocation_row(object_of("r", spec=spec, status={"author": "ann", "expires": "e"}))

    assert row["can_lift"] is can_lift
    assert row["reason"] == spec.get("reason", "unspecified")
    assert (row["author"], row["expires"], row["effective"]) == ("ann", "e", False)
    assert row["cluster"] == spec.get("cluster", "")


def stored() -> Server:
    server = Server()
    server.listed(
        REVOCATIONS,
        object_of("old", "2026-01-01", spec={"user": {"username": "bob"}}, status=EFFECTIVE),
        object_of("new", "2026-02-01", spec={"token": {"jti": "7"}}),
    )
    return server


@pytest.mark.parametrize(
    ("show", "names"),
    [("", ["new", "old"]), ("holds", ["old"]), ("pending", ["new"]), ("x", ["new", "old"])],
)
async def test_the_newest_are_first_and_some_can_be_selected(show: str, names: list[str]) -> None:
    values = await revocations.read_list(visit(stored(), query={"show": show, "done": "lifted"}))

    assert [row["name"] for row in values["found"].value["rows"]] == names
    assert values["done"] == "lifted"


async def test_a_link_says_nothing_that_is_no_notice() -> None:
    values = await revocations.read_list(visit(stored(), query={"done": "anything"}))

    assert values["done"] == ""


def now(**ago: float) -> str:
    return (datetime.now(UTC) - timedelta(**ago)).isoformat()


def test_a_lease_lives_for_its_time() -> None:
    """Of its own, or half a minute."""
    assert lease_is_live({"spec": {"renewTime": now(seconds=20)}})
    assert not lease_is_live({"spec": {"renewTime": now(seconds=40)}})
    assert lease_is_live({"spec": {"renewTime": now(seconds=40), "leaseDurationSeconds": 60}})
    assert not lease_is_live({"spec": {"renewTime": now(seconds=20), "leaseDurationSeconds": 10}})
    assert not lease_is_live({"spec": {"acquireTime": now(), "renewTime": now(hours=1)}})


def lease(name: str, applied: str | None, **ago: float) -> Any:
    notes = {} if applied is None else {f"{ORCH.identity}/applied": applied}
    spec = {"renewTime": now(**ago)}
    return object_of(name, spec=spec, metadata={"annotations": notes})


@pytest.mark.parametrize(
    ("version", "status", "applied"),
    [
        ("7", {}, {"even": True, "behind": False, "odd": False}),
        ("7", EFFECTIVE, {"even": True, "behind": True, "odd": True}),
        ("", {}, {"even": False, "behind": False, "odd": False}),
        ("x7", {}, {"even": False, "behind": False, "odd": False}),
    ],
)
async def test_a_running_server_applies_what_it_has_seen(
    version: str, status: Any, applied: Any
) -> None:
    """By its Lease; those that ended, and of other things, do not count."""
    server = Server()
    one = object_of(
        "r", spec={"token": {"jti": "7"}}, status=status, metadata={"resourceVersion": version}
    )
    server.get(f"{REVOCATIONS}/r", one)
    leases = f"/apis/{ORCH.group('coordination')}/v1/namespaces/{ORCH.system_namespace}/leases"
    server.listed(
        leases,
        lease("odd", "9" * 20),
        lease("even", "7"),
        lease("behind", "6"),
        lease("gone", "9", hours=1),
        lease("leader", None),
    )

    values = await revocations.read_one(visit(server, names={"name": "r"}))

    rows = values["servers"].value
    assert [row["name"] for row in rows] == ["behind", "even", "odd"]
    assert {row["name"]: row["applied"] for row in rows} == applied
    assert values["lists"].value == []
    assert values["named"] == {"jti": "7"}


def authority(name: str, signer: str, *lists: str) -> Any:
    keys = [{"revocationList": one} for one in lists]
    return object_of(name, spec={"signerName": signer}, status={"keys": keys})


@pytest.mark.parametrize(
    ("signer", "asked"),
    [
        ("a", ["/crl/a1.crl", "/crl/a2.crl"]),
        ("other", ["/crl/p1.crl"]),
    ],
)
async def test_the_lists_of_a_certificate_are_those_of_its_signer(
    signer: str, asked: list[str]
) -> None:
    """Of a signer without an authority, those of the platform."""
    server = Server()
    server.listed(
        f"{IDENTITY}/certificateauthorities",
        authority("cluster", "", "p1"),
        authority("a", "a", "a1", "", "a2"),
        authority("b", "b", "b1"),
    )
    spec = {"certificate": {"serialNumber": "a1", "signerName": signer}}
    server.get(f"{REVOCATIONS}/r", object_of("r", spec=spec))

    values = await revocations._lists(visit(server), spec["certificate"])

    assert [path for _, path, _ in server.calls if path.startswith("/crl")] == asked
    assert values == [{"name": asked[0].rpartition("/")[2], "updated": "", "has": False}]
    assert await revocations._lists(visit(server), {"serialNumber": "no number"}) == []


HELD = object_of("r", spec={"token": {"jti": "7"}, "reason": "certificateHold"})


async def lifted(one: Any, status: int = 200, **form: str) -> tuple[Any, Server]:
    server = Server()
    server.get(f"{REVOCATIONS}/r", one)
    server.on("DELETE", f"{REVOCATIONS}/r", {"message": "no"}, status)
    return await lift(visit(server, names={"name": "r"}, form=form)), server


async def test_a_hold_is_lifted_if_it_is_the_one_that_was_shown() -> None:
    done, server = await lifted(HELD, sure="yes", uid="u1")

    assert done == Succeeded("/console/revocations", "lifted")
    (sent,) = server.sent("DELETE")
    assert sent["preconditions"] == {"uid": "u1"}
    assert (sent["kind"], sent["apiVersion"]) == ("DeleteOptions", "v1")


@pytest.mark.parametrize("status", [404, 409])
async def test_another_one_is_not_lifted(status: int) -> None:
    done, _ = await lifted(HELD, status, sure="yes", uid="u1")

    assert done == Retry("It changed since you looked.", 409)


async def test_lifting_is_confirmed_and_of_a_hold() -> None:
    final = object_of("r", spec={"token": {"jti": "7"}, "reason": "superseded"})

    for one, form, status in ((final, "yes", 409), (HELD, "", 400), (HELD, "no", 400)):
        done, server = await lifted(one, sure=form, uid="u1")
        assert isinstance(done, Retry)
        assert done.status == status
        assert not server.sent("DELETE")
    with pytest.raises(Refused):
        await lifted(HELD, 403, sure="yes", uid="u1")
