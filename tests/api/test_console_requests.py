"""The console's pages about requests, over the whole server: reading, deciding, missing rights."""

import base64
from typing import Any

from cryptography import x509

from tests.api.console_pages import Browser, hidden, location
from tests.api.test_approval_reviews import REQUESTS, grant, may_request
from tests.api.world import ALICE, BOB, Api
from tests.unit.kernel.credentials import samples

HOST = "shop.example.com"


def request(name: str, host: str = HOST, **more: Any) -> dict[str, Any]:
    made = samples.request("", (), alternative_names=(x509.DNSName(host),))
    spec = {
        "request": base64.b64encode(made).decode(),
        "signerName": "example.com/web",
        "usages": ["digital signature", "server auth"],
        "expirationSeconds": 86_400,
    }
    return {"metadata": {"name": name}, "spec": {**spec, **more}}


async def may_approve(server: Api, user: str) -> None:
    group = "certificates.orch.io"
    requests = ["certificatesigningrequests", "certificatesigningrequests/approval"]
    await grant(server, user, f"decide-{user}", apiGroups=[group], resources=requests, verbs=["*"])
    await grant(
        server, user, f"approve-{user}", apiGroups=[group], resources=["signers"], verbs=["approve"]
    )
    reviews = {"apiGroups": ["identity.orch.io"], "resources": ["approvalreviews"]}
    await grant(server, user, f"review-{user}", **reviews, verbs=["create"])


async def stored(server: Api, name: str) -> Any:
    return (await server.call("GET", f"{REQUESTS}/{name}")).json


def conditions(found: Any) -> list[tuple[str, str, str]]:
    return [
        (one["type"], one["reason"], one["message"])
        for one in found["status"].get("conditions", ())
    ]


async def test_the_list_has_waiting_requests_first_and_keeps_its_filter(server: Api) -> None:
    """The link to a request carries the filter, so that the way back has it too."""
    for name in ("first", "second", "third"):
        await server.make(REQUESTS, request(name))
    browser = await Browser(server).open()
    page = await browser.page("/requests/first")
    form = {**hidden(page), "decision": "deny", "message": "not now"}
    location(await browser.post("/requests/first", form))

    listed = await browser.page("/requests")
    waiting = await browser.page("/requests?state=Waiting&signer=example.com/web")
    shown = await browser.page("/requests/second?back=state%3DWaiting")

    assert listed.index(">second<") < listed.index(">third<") < listed.index(">first<")
    assert ">first<" not in waiting
    assert "back=state%3DWaiting%26signer%3Dexample.com%252Fweb" in waiting
    assert f'href="{browser.base}/requests?state=Waiting"' in shown


async def test_a_request_is_shown_beside_the_certificate_that_would_be_signed(server: Api) -> None:
    """The decoded bytes, the signer's terms and every policy, in at most eight calls."""
    await server.make(REQUESTS, request("shop"))
    browser = await Browser(server).open()
    browser.calls.sent.clear()

    page = await browser.page("/requests/shop")

    assert f"DNS {HOST}" in page
    assert "What would be signed" in page
    assert "1 day" in page
    assert "No policy selects this request" in page
    assert len(browser.calls.sent) <= 8


async def test_an_approval_is_recorded_with_reason_and_message(server: Api) -> None:
    """As by `orchid csr approve`: one condition, then the page of the request."""
    await server.make(REQUESTS, request("shop"))
    browser = await Browser(server).open()
    form = hidden(await browser.page("/requests/shop"))

    answer = await browser.post(
        "/requests/shop", {**form, "decision": "approve", "reason": "Known", "message": "by phone"}
    )

    assert location(answer) == f"{browser.base}/requests/shop?done=approved"
    assert conditions(await stored(server, "shop")) == [("Approved", "Known", "by phone")]
    assert "Approved. The signer" in await browser.page("/requests/shop?done=approved")


async def test_a_denial_needs_a_message_and_is_never_called_approved(server: Api) -> None:
    """The typed text stays in the form."""
    await server.make(REQUESTS, request("shop"))
    browser = await Browser(server).open()
    form = {**hidden(await browser.page("/requests/shop")), "decision": "deny", "reason": "Mine"}

    refused = await browser.post("/requests/shop", {**form, "message": " "})
    denied = await browser.post("/requests/shop", {**form, "message": "unknown host"})

    assert refused.status == 400
    assert 'value="Mine"' in refused.body.decode()
    assert location(denied).endswith("?done=denied")
    assert conditions(await stored(server, "shop")) == [("Denied", "Mine", "unknown host")]


async def test_a_link_cannot_claim_an_approval(server: Api) -> None:
    """The sentence after an action is in the URL, and anybody can send a link."""
    await server.make(REQUESTS, request("shop"))
    browser = await Browser(server).open()
    paths = ("/requests/shop", "/requests", "/", "/issued", "/revocations")

    pages = [await browser.page(f"{path}?done=approved") for path in paths]
    form = {"decision": "deny", "message": "no", **hidden(pages[0])}
    target = location(await browser.post("/requests/shop", form))
    denied = await browser.page("/requests/shop?done=approved")
    shown = await browser.page(target.removeprefix(browser.base))

    assert not any("Approved." in page for page in (*pages, denied))
    assert "Denied. The requester can read your message." in shown


async def test_a_request_that_was_made_again_with_other_names_is_not_approved(server: Api) -> None:
    """The form was shown for another request of the same name."""
    await server.make(REQUESTS, request("shop"))
    browser = await Browser(server).open()
    form = hidden(await browser.page("/requests/shop"))
    await server.call("DELETE", f"{REQUESTS}/shop")
    await server.make(REQUESTS, request("shop", "evil.example.com"))

    answer = await browser.post("/requests/shop", {**form, "decision": "approve"})

    assert answer.status == 409
    assert "It changed since you looked" in answer.body.decode()
    assert conditions(await stored(server, "shop")) == []


async def test_each_of_uid_version_and_digest_protects_a_decision(server: Api) -> None:
    """A form that lacks one of them, or has another one, decides nothing."""
    await server.make(REQUESTS, request("shop"))
    browser = await Browser(server).open()
    form = {**hidden(await browser.page("/requests/shop")), "decision": "approve"}

    for name in ("uid", "version", "sha256"):
        answer = await browser.post("/requests/shop", {**form, name: "other"})
        assert answer.status == 409, name

    assert conditions(await stored(server, "shop")) == []


async def test_a_second_decision_is_refused(server: Api) -> None:
    """Two tabs show the same request: the later click finds it decided."""
    await server.make(REQUESTS, request("shop"))
    browser = await Browser(server).open()
    form = hidden(await browser.page("/requests/shop"))
    await browser.post("/requests/shop", {**form, "decision": "deny", "message": "no"})
    again = hidden(await browser.page("/requests/shop"))

    answer = await browser.post("/requests/shop", {**form, "decision": "approve"})

    assert answer.status == 409
    assert again == {}
    assert [one[0] for one in conditions(await stored(server, "shop"))] == ["Denied"]


async def test_the_creator_is_warned_and_refused(server: Api) -> None:
    """Four eyes: said before the click, enforced by the server."""
    await may_request(server, "alice")
    await may_approve(server, "alice")
    await server.make(REQUESTS, request("shop"), token=ALICE)
    browser = await Browser(server, ALICE).open()
    page = await browser.page("/requests/shop")

    form = {**hidden(page), "decision": "approve", "message": "typed"}
    answer = await browser.post("/requests/shop", form)

    assert "You made this request. Another person must approve it." in page
    assert answer.status == 403
    assert "may not approve it" in answer.body.decode()
    assert "typed</textarea>" in answer.body.decode()
    assert conditions(await stored(server, "shop")) == []


async def test_another_person_with_the_right_approves(server: Api) -> None:
    """No administrator is needed."""
    await may_request(server, "alice")
    await may_approve(server, "bob")
    await server.make(REQUESTS, request("shop"), token=ALICE)
    browser = await Browser(server, BOB).open()
    page = await browser.page("/requests/shop")

    answer = await browser.post("/requests/shop", {**hidden(page), "decision": "approve"})

    assert "You made this request" not in page
    assert location(answer).endswith("?done=approved")


async def test_a_page_names_the_missing_right_and_the_command_for_it(server: Api) -> None:
    """Nothing is left out silently."""
    browser = await Browser(server, BOB).open()

    overview = await browser.page("/")
    listed = await browser.page("/requests")

    assert overview.count("You may not read this.") >= 3
    assert "orchid grant certificate-approver --user bob" in listed
    assert "certificatesigningrequests" in listed


async def test_an_unknown_request_is_a_page_that_says_so(server: Api) -> None:
    """A name that needs escaping, too."""
    browser = await Browser(server).open()

    for name in ("nothing", "%2e%2e%2f", "a%3Fb", "%F0%9F%8C%B8"):
        found = await browser.get(f"{browser.base}/requests/{name}")
        assert found.status in (400, 404), name
        assert b"Traceback" not in found.body


async def test_a_refused_credential_is_a_page_that_says_so(server: Api) -> None:
    """A token that the server does not know."""
    browser = await Browser(server, "no-such-token").open()

    found = await browser.get(f"{browser.base}/requests")

    assert found.status == 401
    assert "does not accept your credential" in found.body.decode()
