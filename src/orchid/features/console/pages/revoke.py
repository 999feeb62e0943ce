"""Revoking: what it will hit, the reason, and the write.

The form carries the certificates that were shown, and a name for each revocation. So a certificate
that was issued meanwhile is not hit, and a double click creates one revocation.
"""

import re
import secrets
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from orchid.features.console.api import CONFLICT, NOT_FOUND, Json, Refused
from orchid.features.console.page import ConsolePage, Retry, Succeeded, Visit
from orchid.features.console.pages import ledger, shared
from orchid.features.console.pages.accounts import account_path
from orchid.kernel.credentials.x509.revocation_list import REASONS

KINDS: Final = ("csr", "cert", "account", "authority", "user")
MOST_HIT: Final = 100
SEARCHED: Final = 1_000  # certificates of one search
MOST_SEARCHES: Final = 20
LONGEST_MESSAGE: Final = 1024
NAME: Final = re.compile(r"console-[0-9a-f]{16}")


class Hits(msgspec.Struct, frozen=True):
    """What a revocation will hit."""

    kind: str
    target: str
    sentence: str
    certificates: tuple[Json, ...] = ()
    matches: int = 0  # all certificates, also those that are not listed
    confirm: str = ""  # the name that the user must type
    tokens: Json | None = None
    problem: str = ""


async def read(visit: Visit) -> Mapping[str, Any]:
    kind, target = _asked(visit)
    part = await visit.part(_hits(visit, kind, target))
    reasons = [name for name in REASONS if name != "removeFromCRL"]
    return {
        "hits": part,
        "reasons": reasons,
        "name": visit.form.get("name") or f"console-{secrets.token_hex(8)}",
        "kind": kind,
        "target": target,
        "serials": ",".join(item["name"] for item in part.value.certificates) if part.value else "",
    }


def _asked(visit: Visit) -> tuple[str, str]:
    given = {kind: visit.query.get(kind, "") for kind in KINDS if visit.query.get(kind)}
    if len(given) != 1:
        raise Refused(400, "Name one of csr, cert, account, authority or user.")
    return next(iter(given.items()))


async def _hits(visit: Visit, kind: str, target: str) -> Hits:
    return await HITS[kind](visit, target)


async def _of_request(visit: Visit, name: str) -> Hits:
    certificates, is_complete = await _issued_for(visit, name)
    items = tuple(certificates)
    sentence = f"every live certificate of the request {name}"
    problem = "" if items else "No live certificate of this request is on record."
    if not is_complete:
        problem = "Too many certificates have this text in a name. Revoke this one from its page."
    return Hits("csr", name, sentence, items[:MOST_HIT], len(items), problem=problem)


async def _issued_for(visit: Visit, name: str) -> tuple[list[Json], bool]:
    """The live certificates of a request, and whether these are all of them.

    The text of a search is a part of many names, if the requester has chosen a short one.
    """
    certificates: list[Json] = []
    after = ""
    for _ in range(MOST_SEARCHES):
        page = await shared.search(
            visit.api, text=name, state=shared.LIVE, limit=SEARCHED, after=after
        )
        certificates += (
            certificate
            for certificate in page.get("items") or ()
            if certificate.get("request") == name
        )
        after = str(page.get("next") or "")
        if not after:
            return certificates, True
    return certificates, False


async def _of_certificate(visit: Visit, name: str) -> Hits:
    record = await visit.api.get(await visit.api.identity("issuedcertificates", name))
    spec = record.get("spec") or {}
    item = {**spec, "name": name, "requester": (spec.get("requester") or {}).get("username", "")}
    revoked = (record.get("status") or {}).get("revoked") or {}
    item |= {"revoked": revoked.get("time"), "reason": revoked.get("reason", "")}
    problem = (
        "It is a certificate of a cluster: use orchid revoke --cluster."
        if (spec.get("cluster"))
        else ""
    )
    return Hits("cert", name, "one certificate", (item,), 1, problem=problem)


async def _of_account(visit: Visit, target: str) -> Hits:
    namespace, slash, name = target.partition("/")
    if not slash or not namespace or not name:
        raise Refused(400, "An account is NAMESPACE/NAME.")
    account = await visit.api.get(account_path(namespace, name))
    tokens = await visit.part(
        ledger.tokens_of(visit.api, str(account["metadata"].get("uid") or ""))
    )
    sentence = f"every token of the account {target} that was issued until now"
    return Hits("account", target, sentence, tokens=tokens.value)


async def _of_authority(visit: Visit, name: str) -> Hits:
    authority = await visit.api.get(await visit.api.identity("certificateauthorities", name))
    signer = str((authority.get("spec") or {}).get("signerName") or "")
    page = await shared.search(
        visit.api, signerNames=[signer], state=shared.LIVE, sort="end", limit=MOST_HIT
    )
    sentence = f"every certificate of the signer {signer} that was issued until now"
    items, matches = tuple(page.get("items") or ()), int(page.get("matches") or 0)
    return Hits("authority", name, sentence, items, matches, confirm=name)


async def _of_user(visit: Visit, name: str) -> Hits:
    page = await shared.search(
        visit.api, requesters=[name], state=shared.LIVE, sort="end", limit=MOST_HIT
    )
    sentence = f"every credential of the user {name} that was issued until now, on this server"
    items, matches = tuple(page.get("items") or ()), int(page.get("matches") or 0)
    return Hits("user", name, sentence, items, matches, confirm=name)


HITS: Final = {
    "csr": _of_request,
    "cert": _of_certificate,
    "account": _of_account,
    "authority": _of_authority,
    "user": _of_user,
}


# -- the write -----------------------------------------------------------------------------


async def revoke(visit: Visit) -> Succeeded | Retry:
    kind, target = _asked(visit)
    reason, message = visit.form.get("reason", ""), visit.form.get("message", "").strip()
    name = visit.form.get("name", "")
    if reason not in REASONS or reason == "removeFromCRL":
        return Retry("Choose a reason.", 400)
    if len(message) > LONGEST_MESSAGE or not NAME.fullmatch(name):
        return Retry("The form is not one of this page. Open it again.", 400)
    if kind in ("authority", "user") and visit.form.get("confirm", "").strip() != target:
        return Retry(f"Type the name {target} to confirm.", 400)
    targets = await _targets(visit, kind, target)
    if not targets:
        return Retry("There is nothing to revoke.", 400)
    already_revoked = 0
    for number, named in enumerate(targets):
        own = name if len(targets) == 1 else f"{name}-{number}"
        already_revoked += not await _create(
            visit, own, {**named, "reason": reason, "message": message}
        )
    notice = "known" if already_revoked == len(targets) else "revoked"
    if len(targets) == 1 and notice == "revoked":
        return Succeeded(visit.link("revocations", name), notice)
    return Succeeded(visit.link("revocations"), notice)


async def _targets(visit: Visit, kind: str, target: str) -> list[Json]:
    """The part of each spec that names the credential."""
    if kind in ("csr", "cert"):
        shown = visit.form.get("serials", "").split(",")[:MOST_HIT]
        hits = await HITS[kind](visit, target)
        return [
            {
                "certificate": {
                    "serialNumber": record["serialNumber"],
                    "signerName": record["signerName"],
                }
            }
            for record in hits.certificates
            if record["name"] in shown and not hits.problem
        ]
    if kind == "account":
        namespace, _, name = target.partition("/")
        return [{"account": {"namespace": namespace, "name": name}}]
    if kind == "user":
        return [{"user": {"username": target}}]
    record = await visit.api.get(await visit.api.identity("certificateauthorities", target))
    return [{"authority": {"signerName": record["spec"]["signerName"]}}]


async def _create(visit: Visit, name: str, spec: Json) -> bool:
    """Create a revocation; False if the credential was revoked before by another one."""
    naming = await visit.api.naming()
    body = {
        "apiVersion": f"{naming.identity}/v1alpha1",
        "kind": "CredentialRevocation",
        "metadata": {"name": name},
        "spec": {key: value for key, value in spec.items() if value},
    }
    try:
        await visit.api.post(await visit.api.identity("credentialrevocations"), body)
    except Refused as refused:
        if refused.status != CONFLICT:
            raise
        # The same form was sent twice, or another revocation covers this one.
        return await _exists(visit, name)
    return True


async def _exists(visit: Visit, name: str) -> bool:
    try:
        await visit.api.get(await visit.api.identity("credentialrevocations", name))
    except Refused as refused:
        if refused.status != NOT_FOUND:
            raise
        return False
    return True


PAGES = (ConsolePage("/revoke", "revoke.html", read, section="issued", act=revoke),)
