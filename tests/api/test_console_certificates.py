"""The console's inventory and revocations, over the whole server."""

import re
from typing import Any

import pytest
from cryptography import x509

from benchmarks.filling import records
from orchid.features.console.pages import revoke, shared
from tests.api.console_pages import Browser, hidden, location
from tests.api.test_approvers import SIGNER, approve, asked, signed
from tests.api.world import BOB, Api

REVOCATIONS = "/apis/identity.orch.io/v1alpha1/credentialrevocations"


async def certificate(server: Api) -> str:
    """A certificate of bob; its serial number."""
    await asked(server)
    await approve(server)
    serial: str = (await signed(server, 48))["serialNumber"]
    return serial


async def revocations(server: Api) -> list[Any]:
    found: list[Any] = (await server.call("GET", REVOCATIONS)).json["items"]
    return found


async def test_a_certificate_is_found_by_name_and_shows_its_history(server: Api) -> None:
    """Who asked, who approved, and until when."""
    serial = await certificate(server)
    browser = await Browser(server).open()

    found = await browser.page("/issued?q=BOB")
    missed = await browser.page("/issued?q=carol")
    page = await browser.page(f"/issued/{serial}")

    assert "1 certificate" in found
    assert f"/issued/{serial}" in found
    assert "0 certificates" in missed
    for words in ("Requested</strong> by <bdi>bob", "Approved</strong> by <bdi>admin", serial):
        assert words in page


async def test_csv_has_every_found_certificate_and_no_formula(server: Api) -> None:
    """As a file, with the filter of the page."""
    serial = await certificate(server)
    browser = await Browser(server).open()

    found = await browser.get(f"{browser.base}/issued.csv?q=bob")

    assert dict(found.headers)["Content-Disposition"] == 'attachment; filename="certificates.csv"'
    assert found.body.decode().splitlines()[1].startswith(serial)


async def test_pem_has_every_found_certificate(server: Api) -> None:
    """With the filter of the page."""
    await certificate(server)
    browser = await Browser(server).open()

    found = await browser.get(f"{browser.base}/issued.pem?q=bob")
    none = await browser.get(f"{browser.base}/issued.pem?q=carol")

    assert found.body.count(b"-----BEGIN CERTIFICATE-----") == 1
    x509.load_pem_x509_certificate(found.body)
    assert none.body == b""


async def test_a_revocation_shows_its_author_servers_and_reason(server: Api) -> None:
    """The author is the user who created it, whatever the client sent."""
    serial = await certificate(server)
    spec = {"certificate": {"serialNumber": serial, "signerName": SIGNER}, "reason": "superseded"}
    sent = {"metadata": {"name": "gone"}, "spec": spec, "status": {"author": "somebody else"}}
    await server.make(REVOCATIONS, sent)
    browser = await Browser(server).open()

    page = await browser.page("/revocations/gone")

    assert re.search(r"Revoked by</dt><dd>\s*<bdi>admin</bdi>", page)
    assert "superseded" in page
    for section in ("<h2>Servers</h2>", "<h2>Revocation list</h2>"):
        assert section in page
    stored = (await server.call("GET", f"{REVOCATIONS}/gone")).json
    assert stored["status"]["author"] == "admin"


@pytest.mark.parametrize("kind", ["cert", "csr"])
async def test_a_revocation_shows_what_it_will_hit_and_is_created_once(
    server: Api, kind: str
) -> None:
    """Twice the same form is one revocation, with the reason and the message."""
    serial = await certificate(server)
    target = f"/revoke?{kind}={serial if kind == 'cert' else 'r'}"
    browser = await Browser(server).open()
    page = await browser.page(target)
    form = {**hidden(page), "reason": "keyCompromise", "message": "stolen laptop"}

    first, second = await browser.post(target, form), await browser.post(target, form)

    assert "This will hit" in page
    assert f"/issued/{serial}" in page
    assert location(first) == location(second)
    assert location(first).endswith(f"/revocations/{form['name']}?done=revoked")
    [made] = await revocations(server)
    assert made["spec"]["certificate"]["serialNumber"] == serial
    assert (made["spec"]["reason"], made["spec"]["message"]) == ("keyCompromise", "stolen laptop")


async def test_a_request_with_a_common_name_is_found_among_others(
    server: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its name is a part of other names, which expire first; no hit is ever claimed to be all."""
    monkeypatch.setattr(revoke, "SEARCHED", 2)
    await server.server.store.commit(list(records(20)))
    browser = await Browser(server).open()

    found = await browser.page("/revoke?csr=bench-19")
    common = await browser.page("/revoke?csr=bench-1")
    monkeypatch.setattr(revoke, "MOST_SEARCHES", 2)
    missed = await browser.page("/revoke?csr=bench-19")
    given_up = await browser.page("/revoke?csr=bench")

    assert "CN=user-19,O=bench" in found
    assert "CN=user-1,O=bench" in common
    assert "CN=user-10,O=bench" not in common
    assert "CN=user-19,O=bench" in missed  # one certificate has this text
    assert "Too many certificates have this text" in given_up


async def test_only_certificates_that_were_shown_are_revoked(server: Api) -> None:
    """One that was issued after the page was shown stays valid."""
    await certificate(server)
    browser = await Browser(server).open()
    form = hidden(await browser.page("/revoke?csr=r"))

    answer = await browser.post("/revoke?csr=r", {**form, "serials": "", "reason": "superseded"})

    assert answer.status == 400
    assert await revocations(server) == []


async def test_a_user_and_an_authority_must_be_typed(server: Api) -> None:
    """They hit much; the reason is one of RFC 5280."""
    browser = await Browser(server).open()
    form = {**hidden(await browser.page("/revoke?user=bob")), "reason": "keyCompromise"}

    refused = await browser.post("/revoke?user=bob", {**form, "confirm": "bo"})
    wrong = await browser.post("/revoke?user=bob", {**form, "confirm": "bob", "reason": "x"})
    made = await browser.post("/revoke?user=bob", {**form, "confirm": "bob"})

    assert (refused.status, wrong.status) == (400, 400)
    assert 'value="bo"' in refused.body.decode()
    assert location(made).endswith("?done=revoked")
    assert [one["spec"]["user"]["username"] for one in await revocations(server)] == ["bob"]


async def test_the_overview_says_if_not_all_revocations_were_read(
    server: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lists are sorted by name: the newest may be among the others."""
    for name in ("a", "b", "c"):
        body = {"metadata": {"name": name}, "spec": {"user": {"username": name}}}
        await server.make(REVOCATIONS, body)
    browser = await Browser(server).open()

    complete = await browser.page("/")
    monkeypatch.setattr(shared, "FIRST_PAGE", 1)
    monkeypatch.setattr(shared, "PAGE", 1)
    monkeypatch.setattr(shared, "MOST_OBJECTS", 2)
    partial = await browser.page("/")

    assert "newer ones may be missing" not in complete
    assert "newer ones may be missing" in partial


async def test_a_hold_is_lifted_and_a_final_revocation_is_not(server: Api) -> None:
    """Only after a confirmation, and only the one that was shown."""
    serial = await certificate(server)
    browser = await Browser(server).open()
    form = hidden(await browser.page(f"/revoke?cert={serial}"))
    await browser.post(f"/revoke?cert={serial}", {**form, "reason": "certificateHold"})
    page = await browser.page(f"/revocations/{form['name']}")
    shown = hidden(page)

    path = f"/revocations/{form['name']}"
    unsure = await browser.post(path, shown)
    other = await browser.post(path, {"uid": "another", "sure": "yes"})
    lifted = await browser.post(path, {**shown, "sure": "yes"})

    assert (unsure.status, other.status) == (400, 409)
    assert location(lifted).endswith("/revocations?done=lifted")
    assert await revocations(server) == []


async def test_a_final_revocation_has_no_form(server: Api) -> None:
    """And a sent form is refused by the server of the console and by the API."""
    serial = await certificate(server)
    browser = await Browser(server).open()
    form = hidden(await browser.page(f"/revoke?cert={serial}"))
    await browser.post(f"/revoke?cert={serial}", {**form, "reason": "keyCompromise"})
    path = f"/revocations/{form['name']}"

    page = await browser.page(path)
    answer = await browser.post(path, {"uid": "x", "sure": "yes"})

    assert "This revocation is final." in page
    assert answer.status == 409
    assert len(await revocations(server)) == 1


async def test_without_rights_nothing_is_revoked(server: Api) -> None:
    """The server refuses; the page says why, with the typed text."""
    serial = await certificate(server)
    browser = await Browser(server).open()
    form = {**hidden(await browser.page("/revoke?user=carol")), "reason": "keyCompromise"}
    few = await Browser(server, BOB).open()

    answer = await few.post("/revoke?user=carol", {**form, "confirm": "carol", "message": "typed"})

    assert answer.status == 403
    assert await revocations(server) == []
    assert (await few.get(f"{few.base}/issued/{serial}")).status == 403


async def test_the_account_page_counts_tokens_and_shows_none(server: Api) -> None:
    """No token, no Secret: only numbers."""
    await server.account("builder")
    token = await server.token("builder")
    browser = await Browser(server).open()

    page = await browser.page("/accounts/default/builder")
    hit = await browser.page("/revoke?account=default/builder")

    assert "Live tokens" in page
    assert "every token of the account default/builder" in hit
    assert token not in page + hit
    assert not re.search(r"eyJ[\w-]+\.", page + hit)


@pytest.mark.parametrize("target", ["", "?cert=", "?cert=a&csr=b", "?account=x", "?authority=none"])
async def test_a_malformed_target_is_refused(server: Api, target: str) -> None:
    """With a page, not a failure."""
    browser = await Browser(server).open()

    assert (await browser.get(f"{browser.base}/revoke{target}")).status in (400, 404)
