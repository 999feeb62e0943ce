"""Every page of the console, over the whole server: it renders, also with hostile values."""

import base64
import gzip
import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from benchmarks.filling import NOW, records
from orchid.features.certificates.kinds import certificate_signing_request
from orchid.features.certificates.kinds.certificate_signing_request import (
    CertificateSigningRequest,
    CertificateSigningRequestSpec,
)
from orchid.features.console.api import Api as ConsoleApi
from orchid.features.console.live import FOLLOWED, MOST_STREAMS, Changes
from orchid.features.console.page import ConsolePage, Viewer
from orchid.features.console.pages import PAGES
from orchid.features.console.site import NAVIGATION, Site
from orchid.features.console.web.messages import WebRequest
from orchid.kernel.engine.cache.objects import stored_form
from orchid.kernel.outbound.answer import Answer
from orchid.kernel.store.interface import ABSENT, Change
from orchid.kernel.wire.meta import ObjectMeta
from orchid.kernel.wire.naming import ORCH
from tests.api.console_pages import RENDERER, Browser
from tests.api.test_approval_policies import POLICIES, body
from tests.api.test_approval_reviews import REQUESTS
from tests.api.test_console_requests import request
from tests.api.world import BOB, Api

EVIL = "\"'><script>alert(1)</script><img src=x onerror=alert(1)>\u202e{{ 7*7 }}\x00"
PATHS = [f"/{path}" for path, _ in NAVIGATION] + ["/you"]


@pytest.mark.parametrize("path", PATHS)
async def test_every_page_of_the_navigation_is_shown(server: Api, path: str) -> None:
    """To an administrator, in few calls; and to a user without rights."""
    browser = await Browser(server).open()
    await browser.page(path)
    browser.calls.sent.clear()

    page = await browser.page(path)
    few = await (await Browser(server, BOB).open()).page(path)

    assert 'aria-current="page"' in page
    assert "<h1>" in few
    assert len(browser.calls.sent) <= 8, browser.calls.sent


FOLLOWING = {"/", "/requests", "/issued", "/revocations", "/ledger", "/health"}


@pytest.mark.parametrize("path", PATHS)
async def test_parts_of_a_page_follow_the_server(server: Api, path: str) -> None:
    """By changes of a kind, or by reading again; the script finds each part by its id."""
    page = await (await Browser(server).open()).page(path)

    parts = re.findall(r"<[a-z]+ [^>]*data-live(?:=\"rows\")?(?=[ >])[^>]*>", page)
    ids = [re.findall(r'id="([a-z]+)"', part) for part in parts]
    [(of, every)] = re.findall(r'data-live-of="(.*?)" .*data-live-every="(.*?)"', page)

    assert all(len(one) == 1 for one in ids), parts
    assert len({one[0] for one in ids}) == len(ids)
    assert set(filter(None, of.split(","))) <= set(FOLLOWED)
    assert bool(of or every) == (path in FOLLOWING)
    assert bool(parts) == (path in FOLLOWING - {"/ledger"})  # this server has none


@pytest.mark.parametrize("path", ["/issued", "/issued?q=user&sort=subject", "/requests"])
async def test_a_page_of_a_hundred_rows_is_small(server: Api, path: str) -> None:
    """At most 8 kB compressed, in at most 8 calls of the API."""
    await server.server.store.commit(list(records(120)))
    await server.server.store.commit(list(waiting(120)))
    browser = await Browser(server).open()
    await browser.page(path)
    browser.calls.sent.clear()

    page = await browser.page(path)

    assert page.count('class="row"') == 100
    assert len(gzip.compress(page.encode())) <= 8 * 1024
    assert len(browser.calls.sent) <= 8, browser.calls.sent


def waiting(count: int) -> Iterator[Change]:
    """Certificate requests of different users."""
    kind = certificate_signing_request.declare(ORCH)
    spec = request("x")["spec"]
    for number in range(count):
        meta = ObjectMeta(name=f"req-{number}", uid=f"uid-{number}", creation_timestamp=NOW)
        found = CertificateSigningRequest(
            metadata=meta,
            spec=CertificateSigningRequestSpec(
                request=base64.b64decode(spec["request"]),
                signer_name=spec["signerName"],
                usages=tuple(spec["usages"]),
                username=f"user-{number}",
            ),
        )
        yield Change(kind.key("", meta.name), stored_form(found), ABSENT)


async def test_a_policy_is_tried_without_being_stored(server: Api) -> None:
    """An edited copy, with a stored request."""
    await server.make(POLICIES, body("web"))
    await server.make(REQUESTS, request("shop", "a.web.example.com"))
    browser = await Browser(server).open()
    page = await browser.page("/policies/web")
    edited = "signerNames: [example.com/web]\nallows: {dnsNames: [other.example.com]}"

    tried = await browser.post("/policies/web", {"policy": edited, "request": "shop"})
    broken = await browser.post("/policies/web", {"policy": "a: [", "request": "shop"})
    wrong = await browser.post("/policies/web", {"policy": "nonsense: 1", "request": "shop"})

    assert "signerNames" in page
    assert tried.status == 200
    assert "It would leave the request to a person." in tried.body.decode()
    assert (broken.status, wrong.status) == (400, 422)
    assert edited.splitlines()[0] in tried.body.decode()


@pytest.mark.parametrize(
    "policy",
    [
        "a: &a [x]\n" + "".join(f"a{n}: &a [{'*a,' * 10}]\n" for n in range(9)),  # billions
        "a: &a [*a]",
        "a: " + "[" * 2_000 + "]" * 2_000,
        "? [1]\n: 2",
        "a: !!set {b}",
        "a: !!binary aaaa",
        "a: .inf",
        "a: [",
    ],
)
async def test_a_policy_that_is_no_json_in_yaml_is_refused(server: Api, policy: str) -> None:
    """Before anything is sent to the API: aliases can stand for more than there is memory."""
    await server.make(POLICIES, body("web"))
    browser = await Browser(server).open()

    found = await browser.post("/policies/web", {"policy": policy, "request": "shop"})

    assert found.status == 400
    assert "The policy cannot be read." in found.body.decode()
    assert not any("approvalreviews" in target for _, target in browser.calls.sent)


async def test_a_date_in_a_policy_is_text(server: Api) -> None:
    """As in the files that `orchid policy apply` reads."""
    await server.make(POLICIES, body("web"))
    await server.make(REQUESTS, request("shop", "a.web.example.com"))
    edited = "signerNames: [example.com/web]\nrequesters: {usernames: [2026-01-01]}"
    browser = await Browser(server).open()

    tried = await browser.post("/policies/web", {"policy": edited, "request": "shop"})

    assert tried.status == 200, tried.body.decode()


async def test_an_account_shows_its_secrets_without_their_contents(server: Api) -> None:
    """Names and times of the Secrets with a token of this account."""
    accounts = "/api/v1/namespaces/team/serviceaccounts"
    made = await server.make(accounts, {"metadata": {"name": "app"}})
    token = {
        "metadata": {
            "name": "app-token",
            "annotations": {
                "orch.io/service-account.name": "app",
                "orch.io/service-account.uid": made["metadata"]["uid"],
            },
        },
        "type": "orch.io/service-account-token",
        "data": {"token": base64.b64encode(b"very secret").decode()},
    }
    other = {"metadata": {"name": "other"}, "data": {"a": "Yg=="}}
    for one in (token, other):
        await server.make("/api/v1/namespaces/team/secrets", one)
    browser = await Browser(server).open()

    page = await browser.page("/accounts/team/app")

    assert page.count("<bdi>app-token</bdi>") == 1
    assert "<bdi>other</bdi>" not in page
    assert token["data"]["token"] not in page  # type: ignore[index]  # a dict
    assert "very secret" not in page


async def test_health_lists_objects_that_are_not_ready(server: Api) -> None:
    """With the reason, and a link to the page of the object."""
    browser = await Browser(server).open()
    before = await browser.page("/health")
    made = {**body("broken"), "metadata": {"name": "broken"}}
    await server.make(POLICIES, made)
    condition = {
        "type": "Ready", "status": "False", "reason": "Invalid", "message": "rule 1 is wrong",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }  # fmt: skip
    found = (await server.call("GET", f"{POLICIES}/broken")).json
    found["status"] = {"conditions": [condition]}
    await server.call("PUT", f"{POLICIES}/broken/status", found)

    page = await browser.page("/health")

    assert "are ready, and the ledger is written" in before
    assert "rule 1 is wrong" in page
    assert "/policies/broken" in page


async def test_the_ledger_is_verified_here(server: Api) -> None:
    """The entries are read and hashed by the console."""
    browser = await Browser(server).open()

    found = await browser.post("/ledger", {})

    assert found.status in (200, 409)
    assert b"Traceback" not in found.body


@pytest.mark.parametrize(
    ("query", "answer"),
    [
        ("user=bob&verb=get&resource=secrets", "No."),
        ("user=x&groups=system:masters&verb=get&resource=secrets", "Yes."),
        ("user=bob&verb=get&resource=/version", "Yes."),
    ],
)
async def test_a_right_is_asked_for(server: Api, query: str, answer: str) -> None:
    """By the server's own decision."""
    browser = await Browser(server).open()

    assert f"<strong>{answer}</strong>" in await browser.page(f"/rights?{query}")


class HostileServer:
    """Answers every call with hostile values in every field."""

    async def send(
        self, method: str, target: str, body: bytes = b"", media: str = "", *, accept: str = ""
    ) -> Answer:
        if target == "/apis":
            groups = [{"name": "authentication.orch.io"}]
            return Answer(200, json.dumps({"groups": groups}).encode())
        if target.startswith(("/ledger", "/metrics", "/crl")):
            return Answer(200, EVIL.encode())
        if target.startswith("/readyz"):
            return Answer(200, f"[+]{EVIL}\n[-]{EVIL}".encode())
        return Answer(200, json.dumps(hostile()).encode())

    def stream(self, target: str) -> Any:
        raise NotImplementedError


async def hostile_sessions() -> list[dict[str, Any]]:
    return [{"address": EVIL, "begun": EVIL, "seen": EVIL, "expires": EVIL, "is_this": True}]


def hostile() -> dict[str, Any]:
    names = "name serialNumber signerName subject requester request approver policy reason"
    item = dict.fromkeys((*names.split(), "cluster", "notAfter", "revoked"), EVIL)
    check = {"field": EVIL, "value": EVIL, "allowed": False, "message": EVIL}
    policy = {"name": EVIL, "selected": True, "usable": True, "message": EVIL, "checks": [check]}
    condition = {"type": EVIL, "status": EVIL, "reason": EVIL, "message": EVIL}
    status = {
        "userInfo": {"username": EVIL, "uid": EVIL, "groups": [EVIL], "extra": {EVIL: [EVIL]}},
        "conditions": [condition, {**condition, "type": "Ready"}],
        "items": [{**item, "names": [EVIL] * 5}],
        "matches": 1,
        "next": EVIL,
        "outcome": EVIL,
        "message": EVIL,
        "policies": [policy],
        "certificate": {"subject": EVIL, "names": [EVIL], "usages": [EVIL], "key": EVIL},
        "obstacles": [EVIL],
        "keys": [{"name": EVIL, "state": EVIL, "revocationList": EVIL}],
        "editions": [{"sequence": EVIL}],
        "revoked": {"time": EVIL, "reason": EVIL},
    }
    spec = {
        "username": EVIL, "uid": EVIL, "groups": [EVIL], "extra": {EVIL: [EVIL]},
        "signerName": EVIL, "usages": [EVIL], "request": {"name": EVIL}, "names": [EVIL],
        "subject": EVIL, "serialNumber": EVIL, "sha256": EVIL, "notAfter": EVIL,
        "requester": {"username": EVIL, "groups": [EVIL]}, "trustBundle": EVIL,
        "approver": {"username": EVIL, "policy": EVIL, "impersonator": EVIL},
        "approval": {"message": EVIL}, "reason": EVIL, "message": EVIL, "cluster": EVIL,
        "signerNames": [EVIL], "allows": {EVIL: [EVIL]}, "rules": [{"expression": EVIL}],
        "requesters": {EVIL: [EVIL]}, "otherwise": EVIL, "user": {"username": EVIL},
        "issues": {"usages": [EVIL], "names": [EVIL], "maxDuration": EVIL},
        "holderIdentity": EVIL, "renewTime": EVIL,
    }  # fmt: skip
    meta = {"name": EVIL, "namespace": EVIL, "uid": EVIL, "creationTimestamp": EVIL}
    one = {"metadata": {**meta, "annotations": {EVIL: EVIL}}, "spec": spec, "status": status}
    rule = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}
    bound = {"roleRef": {"kind": "Role", "name": EVIL}, "subjects": [{"kind": EVIL, "name": EVIL}]}
    names = ("SignerName", "Requestor", "Condition")
    table = {"columnDefinitions": [{"name": name} for name in names]}
    row = {"cells": [EVIL] * len(names), "object": {"metadata": meta}}
    items = [{**one, **bound, "rules": [rule]}]
    return {**one, **table, "rows": [row], "items": items, "gitVersion": EVIL}


@pytest.mark.parametrize(
    "page", [page for page in PAGES if isinstance(page, ConsolePage)], ids=lambda page: page.path
)
async def test_hostile_values_are_text_on_every_page(page: ConsolePage) -> None:
    """In every field that the server returns, and in the URL: no element and no attribute."""
    viewer = Viewer(
        ConsoleApi(HostileServer()), Changes(), "https://orchid.test", sessions=hostile_sessions
    )
    path = re.sub(r"\{\w+\}", "x%3Cscript%3E", page.path)
    names = ("q", "state", "signer", "requester", "approver", "within", "sort", "after", "back")
    query = dict.fromkeys((*names, "user", "verb", "resource", "namespace", "done"), EVIL)
    if page.path == "/revoke":
        query = {"cert": EVIL}

    answer = await Site(RENDERER, PAGES).respond(
        WebRequest("GET", path, query, {}), "/base", viewer
    )

    shown = answer.body.decode()
    assert answer.status == 200, shown[-2000:]
    assert shown.count("<script>") == 0
    assert shown.count("<img src=x") == 0
    # A field of a form has the typed text as it is; everything else is spelled out.
    read = re.sub(r' value="[^"]*"|<textarea.*?</textarea>', "", shown, flags=re.DOTALL)
    assert read.count("\u202e") == 0
    assert read.count("\x00") == 0
    assert read.count("&lt;script&gt;") > 0
    assert read.count("{{ 7*7 }}") > 0
    assert re.search(r"<[a-z]+[^>]*\son[a-z]+=", read) is None


async def test_a_page_that_does_not_exist_is_404(server: Api) -> None:
    browser = await Browser(server).open()

    for path in ("/nothing", "/requests/a/b/c", "/static/x", "/live", "/live?of=secrets"):
        assert (await browser.get(f"{browser.base}{path}")).status == 404, path


async def test_a_change_is_reported_without_its_contents(server: Api) -> None:
    """The stream names the kind; the page then fetches itself."""
    browser = await Browser(server).open()
    found = await browser.get(f"{browser.base}/live?of=certificatesigningrequests")
    assert found.stream is not None
    begin = await anext(found.stream)
    await server.make(REQUESTS, request("shop"))

    event = await anext(found.stream)

    assert begin.startswith(b"retry:")
    assert event == b"event: change\ndata: certificatesigningrequests\n\n"
    await found.stream.aclose()  # type: ignore[attr-defined]  # an async generator


async def test_a_session_follows_at_most_four_streams(server: Api) -> None:
    """Also if all of them were asked for at once, before any had begun."""
    browser = await Browser(server).open()
    target = f"{browser.base}/live?of=certificatesigningrequests"
    found = [await browser.get(target) for _ in range(MOST_STREAMS + 2)]
    streams: Any = [one.stream for one in found]

    begun = [await anext(one, b"ended") for one in streams]
    late = await browser.get(target)
    for one in streams:
        await one.aclose()
    again = await browser.get(target)

    assert begun == [b"retry: 3000\n\n"] * MOST_STREAMS + [b"ended"] * 2
    assert (late.status, again.status) == (204, 200)


async def test_a_stream_ends_when_the_user_signs_out(server: Api) -> None:
    """Also that of another tab: nothing of the next change is sent."""
    browser = await Browser(server).open()
    found = await browser.get(f"{browser.base}/live?of=certificatesigningrequests")
    assert found.stream is not None
    await anext(found.stream)

    assert (await browser.post("/out", {})).status == 200
    await server.make(REQUESTS, request("shop"))

    assert await anext(found.stream, b"ended") == b"ended"


def test_only_five_things_are_written() -> None:
    """Approve and deny, revoke, lift; the sign-in signs out. Others post and store nothing."""
    acting = {page.path for page in PAGES if isinstance(page, ConsolePage) and page.act}

    assert acting == {
        "/requests/{name}",
        "/revoke",
        "/revocations/{name}",
        "/policies/{name}",  # tries a policy
        "/ledger",  # verifies
    }
