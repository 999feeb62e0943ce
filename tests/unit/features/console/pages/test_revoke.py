"""The page that revokes: what it will hit, each refusal of its form, and the revocations."""

from typing import Any

import pytest

from orchid.features.console.api import Refused
from orchid.features.console.page import Retry, Succeeded
from orchid.features.console.pages import revoke
from tests.unit.features.console.pages.asked import IDENTITY, Server, forbidden, object_of, visit

REVOCATIONS = f"{IDENTITY}/credentialrevocations"
NAME = "console-0123456789abcdef"
FORM = {"reason": "keyCompromise", "message": " lost ", "name": NAME, "serials": "a1,b2"}


def issued(name: str, request: str = "web", **more: Any) -> dict[str, Any]:
    return {"name": name, "serialNumber": name, "signerName": "s", "request": request, **more}


def server() -> Server:
    api = Server()
    api.searched(issued("a1"), issued("b2"), issued("c3", "web-2"), matches=3)
    api.on("POST", REVOCATIONS, {}, 201)
    api.get(f"{IDENTITY}/certificateauthorities/web", object_of("web", spec={"signerName": "s"}))
    return api


async def hits(api: Server, **query: str) -> Any:
    return (await revoke.read(visit(api, query=query)))["hits"].value


@pytest.mark.parametrize("query", [{}, {"csr": ""}, {"csr": "a", "user": "b"}, {"key": "k"}])
async def test_a_page_names_one_credential(query: dict[str, str]) -> None:
    with pytest.raises(Refused) as refusal:
        await revoke.read(visit(server(), query=query))
    assert refusal.value.status == 400


async def test_the_certificates_of_a_request_are_those_of_its_name() -> None:
    """A search finds others whose name contains it; the form carries what is shown."""
    values = await revoke.read(visit(server(), query={"csr": "web"}))

    found = values["hits"].value
    assert [one["name"] for one in found.certificates] == ["a1", "b2"]
    assert (found.matches, found.problem, found.confirm) == (2, "", "")
    assert values["serials"] == "a1,b2"
    assert (values["kind"], values["target"]) == ("csr", "web")
    assert revoke.NAME.fullmatch(values["name"])
    assert "keyCompromise" in values["reasons"]
    assert "removeFromCRL" not in values["reasons"]
    assert (await hits(server(), csr="other")).problem.startswith("No live certificate")
    kept = await revoke.read(visit(server(), query={"csr": "web"}, form={"name": NAME}))
    assert kept["name"] == NAME


async def test_a_search_goes_on_for_some_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """With more than these nothing is revoked by the name of the request."""
    api = server()
    pages: list[dict[str, Any]] = [
        {"items": [issued("a1")], "next": "n1"},
        {"items": [issued("b2")]},
    ]
    api.on("POST", f"{IDENTITY}/certificatesearches", lambda _: next_page())

    def next_page() -> Any:
        return {"status": pages[min(len(api.sent("POST")) - 1, 1)]}

    assert [one["name"] for one in (await hits(api, csr="web")).certificates] == ["a1", "b2"]
    assert [sent["spec"]["after"] for sent in api.sent("POST")] == ["", "n1"]
    assert {sent["spec"]["state"] for sent in api.sent("POST")} == {"Live"}

    pages[1]["next"] = "n2"
    api.calls.clear()
    found = await hits(api, csr="web")
    assert "Too many certificates" in found.problem
    assert len(api.sent("POST")) == revoke.MOST_SEARCHES
    refused: Any = await revoke.revoke(visit(api, query={"csr": "web"}, form=FORM))
    assert refused.problem == "There is nothing to revoke."


async def test_one_certificate_is_shown_with_its_requester_and_revocation() -> None:
    """That of a cluster is not revoked here."""
    api = server()
    spec = {"serialNumber": "a1", "signerName": "s", "requester": {"username": "bob"}}
    revoked = {"revoked": {"time": "t", "reason": "superseded"}}
    api.get(f"{IDENTITY}/issuedcertificates/a1", object_of("a1", spec=spec, status=revoked))
    other = object_of("b2", spec={**spec, "cluster": "prod"})
    api.get(f"{IDENTITY}/issuedcertificates/b2", other)

    one = await hits(api, cert="a1")
    (shown,) = one.certificates
    assert (shown["requester"], shown["revoked"], shown["reason"]) == ("bob", "t", "superseded")
    assert (one.matches, one.problem) == (1, "")
    assert "orchid revoke --cluster" in (await hits(api, cert="b2")).problem
    made: Any = await revoke.revoke(visit(api, query={"cert": "b2"}, form=FORM))
    assert made.problem == "There is nothing to revoke."


@pytest.mark.parametrize("target", ["robot", "/robot", "ci/"])
async def test_an_account_has_a_namespace(target: str) -> None:
    with pytest.raises(Refused, match="NAMESPACE/NAME"):
        await hits(server(), account=target)


async def test_users_and_authorities_show_the_number_of_certificates() -> None:
    """And the name to type; each searches for its own."""
    api = server()

    user, authority = await hits(api, user="bob"), await hits(api, authority="web")

    assert (user.matches, user.confirm, len(user.certificates)) == (3, "bob", 3)
    assert (authority.matches, authority.confirm) == (3, "web")
    of_user, of_authority = [sent["spec"] for sent in api.sent("POST")]
    assert (of_user["requesters"], of_user["state"]) == (["bob"], "Live")
    assert (of_authority["signerNames"], of_authority["state"]) == (["s"], "Live")
    assert of_user["limit"] == of_authority["limit"] == revoke.MOST_HIT


async def written(api: Server, query: dict[str, str], **form: str) -> Any:
    return await revoke.revoke(visit(api, query=query, form={**FORM, **form}))


@pytest.mark.parametrize(
    ("query", "form", "problem"),
    [
        ({"csr": "web"}, {"reason": "removeFromCRL"}, "Choose a reason."),
        ({"csr": "web"}, {"reason": ""}, "Choose a reason."),
        ({"csr": "web"}, {"reason": "bored"}, "Choose a reason."),
        ({"csr": "web"}, {"message": "x" * 1025}, "not one of this page"),
        ({"csr": "web"}, {"name": "console-0123"}, "not one of this page"),
        ({"csr": "web"}, {"name": f"{NAME}0"}, "not one of this page"),
        ({"csr": "web"}, {"name": ""}, "not one of this page"),
        ({"csr": "web"}, {"serials": "c3"}, "nothing to revoke"),
        ({"csr": "web"}, {"serials": ""}, "nothing to revoke"),
        ({"user": "bob"}, {}, "Type the name bob"),
        ({"user": "bob"}, {"confirm": "web"}, "Type the name bob"),
        ({"authority": "web"}, {"confirm": ""}, "Type the name web"),
    ],
)
async def test_each_refusal_of_the_form(
    query: dict[str, str], form: dict[str, str], problem: str
) -> None:
    api = server()

    refused = await written(api, query, **form)

    assert isinstance(refused, Retry)
    assert problem in refused.problem
    assert refused.status == 400
    assert not api.sent("POST", "credentialrevocations")


@pytest.mark.parametrize(
    ("query", "confirm", "spec"),
    [
        ({"account": "ci/robot"}, "", {"account": {"namespace": "ci", "name": "robot"}}),
        ({"user": "bob"}, " bob ", {"user": {"username": "bob"}}),
        ({"authority": "web"}, "web", {"authority": {"signerName": "s"}}),
    ],
)
async def test_one_credential_is_revoked_under_the_name_of_the_form(
    query: dict[str, str], confirm: str, spec: Any
) -> None:
    api = server()

    done = await written(api, query, confirm=confirm)

    (sent,) = api.sent("POST", "credentialrevocations")
    assert sent["metadata"] == {"name": NAME}
    assert sent["kind"] == "CredentialRevocation"
    assert sent["spec"] == {**spec, "reason": "keyCompromise", "message": "lost"}
    assert done == Succeeded(f"/console/revocations/{NAME}", "revoked")


async def test_only_certificates_that_were_shown_are_revoked() -> None:
    """Each has a revocation, whose name says which of the form it is."""
    api = server()

    both = await written(api, {"csr": "web"}, message="")
    one = await written(api, {"csr": "web"}, serials="b2")

    sent = api.sent("POST", "credentialrevocations")
    assert [(each["metadata"]["name"], each["spec"]["certificate"]) for each in sent] == [
        (f"{NAME}-0", {"serialNumber": "a1", "signerName": "s"}),
        (f"{NAME}-1", {"serialNumber": "b2", "signerName": "s"}),
        (NAME, {"serialNumber": "b2", "signerName": "s"}),
    ]
    assert "message" not in sent[0]["spec"]
    assert both == Succeeded("/console/revocations", "revoked")
    assert one.target == f"/console/revocations/{NAME}"


async def test_a_conflict_is_no_failure() -> None:
    """The same form sent twice is a success; another revocation makes it known."""
    api = server()
    api.on("POST", REVOCATIONS, {"message": "exists"}, 409)

    known = await written(api, {"account": "ci/robot"})
    api.get(f"{REVOCATIONS}/{NAME}", object_of(NAME))
    again = await written(api, {"account": "ci/robot"})

    assert known == Succeeded("/console/revocations", "known")
    assert again == Succeeded(f"/console/revocations/{NAME}", "revoked")


async def test_one_of_two_that_is_known_is_a_revocation() -> None:
    api = server()
    api.on(
        "POST", REVOCATIONS, lambda sent: (409 if sent["metadata"]["name"][-1] == "0" else 201, {})
    )

    assert (await written(api, {"csr": "web"})).notice == "revoked"


async def test_other_failures_are_raised() -> None:
    """Of the write, and of the question for what is there."""
    api = server()
    api.on("POST", REVOCATIONS, forbidden("credentialrevocations"), 403)
    with pytest.raises(Refused) as refusal:
        await written(api, {"account": "ci/robot"})
    assert refusal.value.status == 403

    api.on("POST", REVOCATIONS, {}, 409)
    api.get(f"{REVOCATIONS}/{NAME}", forbidden("credentialrevocations"), 403)
    with pytest.raises(Refused):
        await written(api, {"account": "ci/robot"})
