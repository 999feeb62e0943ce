"""The inventory: conditions of a search, exports, and revocations of one certificate."""

import base64
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import Encoding

from orchid.features.console.api import Refused
from orchid.features.console.pages import issued
from orchid.features.console.pages.issued import spec_of
from tests.unit.features.console.pages.asked import IDENTITY, SEARCHES, Server, object_of, visit
from tests.unit.kernel.credentials import chains

REVOCATIONS = f"{IDENTITY}/credentialrevocations"
DEFAULTS = {
    "text": "",
    "signerNames": [],
    "requesters": [],
    "approvers": [],
    "endsWithin": "",
    "omitReplaced": False,
    "state": "Live",
    "sort": "end",
}


@pytest.mark.parametrize(
    ("query", "conditions"),
    [
        ({}, {}),
        ({"q": " web "}, {"text": "web"}),
        ({"signer": " s "}, {"signerNames": ["s"]}),
        ({"requester": "bob"}, {"requesters": ["bob"]}),
        ({"approver": "ann", "signer": " "}, {"approvers": ["ann"]}),
        ({"within": "7d"}, {"endsWithin": "168h", "omitReplaced": True}),
        ({"within": "30d"}, {"endsWithin": "720h", "omitReplaced": True}),
        ({"within": "8d"}, {}),
        ({"state": "Revoked", "sort": "subject"}, {"state": "Revoked", "sort": "subject"}),
        ({"state": "x", "sort": "x"}, {}),
    ],
)
def test_each_condition_of_a_search(query: dict[str, str], conditions: Any) -> None:
    assert spec_of(query) == {**DEFAULTS, **conditions}


async def test_the_list_keeps_its_filter() -> None:
    """In the link of the next page, and in the downloads."""
    server = Server()
    server.searched({"name": "a1"}, next="n1")
    authorities = [object_of(name, spec={"signerName": name}) for name in ("b", "a", "b")]
    server.listed(f"{IDENTITY}/certificateauthorities", *authorities)

    values = await issued.read_list(visit(server, query={"q": "web", "after": "n0", "x": "y"}))

    assert values["next"] == "/console/issued?q=web&after=n1"
    assert values["export"] == "/console/issued.csv?q=web"
    assert values["export_pem"] == "/console/issued.pem?q=web"
    assert values["signers"].value == ["a", "b"]
    (sent,) = server.sent("POST")
    assert sent["spec"] == {**DEFAULTS, "text": "web", "limit": 100, "after": "n0"}


def pages(server: Server, *found: Any) -> None:
    def answer(sent: Any) -> Any:
        return {"status": found[len(server.sent("POST")) - 1]}

    server.on("POST", SEARCHES, answer)


async def test_csv_has_every_page(monkeypatch: pytest.MonkeyPatch) -> None:
    """Up to a number of certificates."""
    server = Server()
    names = {"names": ["a", "b"], "serialNumber": "=1"}
    pages(server, {"items": [names], "next": "n1"}, {"items": [{"serialNumber": "2"}]})

    answer = await issued.fetch_csv(visit(server))

    lines = answer.body.decode().split("\r\n")
    assert lines[0].split(",") == list(issued.CSV_COLUMNS)
    assert lines[1].startswith("'=1,,,a b,")
    assert lines[2].startswith("2,")
    assert [sent["spec"].get("after") for sent in server.sent("POST")] == [None, "n1"]
    assert answer.media.startswith("text/csv")
    assert ("Content-Disposition", 'attachment; filename="certificates.csv"') in answer.headers

    monkeypatch.setattr(issued, "MOST_EXPORTED", 2000)
    server.calls.clear()
    pages(server, *[{"items": [names], "next": "n"}] * 3)
    assert (await issued.fetch_csv(visit(server))).body.count(b"\r\n") == 3


CERTIFICATE = chains.make().public_bytes(Encoding.DER)


def stored(name: str, **spec: Any) -> Any:
    encoded = base64.b64encode(CERTIFICATE).decode()
    return object_of(name, spec={"certificate": encoded, **spec})


async def test_pem_has_every_certificate_that_is_still_there() -> None:
    """In their order; more than a number is refused."""
    server = Server()
    names = [f"n{number}" for number in range(10)]
    server.searched(*({"name": name} for name in names))
    for name in (*names[:3], names[9]):
        server.get(f"{IDENTITY}/issuedcertificates/{name}", stored(name))

    answer = await issued.fetch_pems(visit(server))

    assert answer.body.count(b"-----BEGIN CERTIFICATE-----") == 4
    assert answer.media == "application/x-pem-file"
    (sent,) = server.sent("POST")
    assert sent["spec"]["limit"] == issued.MOST_PEM
    server.searched({"name": "n0"}, next="more")
    with pytest.raises(Refused, match="More than 1000") as refusal:
        await issued.fetch_pems(visit(server))
    assert refusal.value.status == 400
    one = await issued.fetch_pem(visit(server, names={"name": "n0"}))
    assert one.body.count(b"-----BEGIN") == 1


async def test_a_certificate_is_shown_with_its_own_revocations() -> None:
    """By its number or its digest; an empty one names none."""
    server = Server()
    server.get(
        f"{IDENTITY}/issuedcertificates/a1",
        {
            **stored("a1", serialNumber="a1", sha256="f1", approver={"username": "ann"}),
            "status": {"revoked": {"time": "2026-01-01T00:00:00Z", "reason": "superseded"}},
        },
    )
    server.get(f"{IDENTITY}/issuedcertificates/b2", stored("b2", cluster="prod"))
    server.listed(
        REVOCATIONS,
        object_of("number", spec={"certificate": {"serialNumber": "a1"}}),
        object_of("digest", spec={"certificate": {"sha256": "f1"}}),
        object_of("other", spec={"certificate": {"serialNumber": "b2"}}),
        object_of("token", spec={"token": {"jti": "a1"}}),
        object_of("none", spec={"certificate": {}}),
    )

    ours = await issued.read_one(visit(server, names={"name": "a1"}))
    other = await issued.read_one(visit(server, names={"name": "b2"}))

    assert [row["name"] for row in ours["revocations"].value] == ["number", "digest"]
    assert other["revocations"].value == []
    assert (ours["is_ours"], other["is_ours"]) == (True, False)
    assert ours["approver"] == {"username": "ann"}
    assert ours["certificate"].subject == "CN=alice"
    assert ours["state"] != other["state"]
