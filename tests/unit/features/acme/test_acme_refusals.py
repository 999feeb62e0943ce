"""Each part of each condition that refuses an ACME request, without a server."""

import contextlib
import hashlib
import hmac
import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from orchid.features.acme.accounts import AccountPages, refuse_contacts
from orchid.features.acme.acme_accounts import ExternalKey, account_name, is_account_of
from orchid.features.acme.acme_orders import PROCESSING, READY, VALID, OrderCounts, OrderState
from orchid.features.acme.kinds import acme_order
from orchid.features.acme.kinds.acme_account import AcmeAccount, AcmeAccountSpec
from orchid.features.acme.kinds.acme_order import (
    AcmeIdentifier,
    AcmeOrder,
    AcmeOrderSpec,
    AcmeOrderStatus,
)
from orchid.features.acme.orders import MOST_LIVE, MOST_PER_MINUTE, MOST_REPLACING, OrderPages
from orchid.features.acme.protocol.binding import verify_binding
from orchid.features.acme.protocol.jws import Flattened
from orchid.features.acme.protocol.links import LONGEST_PATH, Links
from orchid.features.acme.protocol.nonces import Nonces
from orchid.features.acme.protocol.problems import AcmeProblem
from orchid.features.acme.protocol.requests import RequestTarget, SignedRequests, VerifiedRequest
from orchid.features.acme.revoking import RevocationPage
from orchid.features.approval.issuing_terms import IssuingTerms
from orchid.features.authorities.authority_spec import CertificateAuthoritySpec
from orchid.features.authorities.kinds.certificate_authority import CertificateAuthority
from orchid.features.certificates.kinds.certificate_signing_request import (
    CertificateSigningRequest,
    CertificateSigningRequestSpec,
)
from orchid.features.certificates.kinds.issued_certificate import (
    CertificateKey,
    IssuedCertificate,
    IssuedCertificateSpec,
    Requester,
)
from orchid.features.certificates.renewal_information import MalformedId
from orchid.kernel.credentials.authorities.issuer_chain import spki
from orchid.kernel.credentials.jwk import AccountKey, read_jwk_text
from orchid.kernel.credentials.keys import TokenKey, generate
from orchid.kernel.credentials.x509 import pem
from orchid.kernel.wire.errors import AlreadyExists
from orchid.kernel.wire.meta import ObjectMeta
from orchid.kernel.wire.naming import ORCH
from orchid.kernel.wire.references import owner_reference
from orchid.kernel.wire.struct import replace
from orchid.kernel.wire.user import UserInfo
from tests.unit.features.acme.acme_client import b64, public, request_for
from tests.unit.features.beside import MovingClock
from tests.unit.kernel.credentials import chains

SIGNER, BASE = "example.com/servers", "https://acme.test"
KIND = acme_order.declare(ORCH)
LINKS = Links(BASE, "servers")
NOW = datetime.now(UTC)
AUTHORITY = CertificateAuthority(
    metadata=ObjectMeta(name="servers", uid="c1", creation_timestamp=NOW),
    spec=CertificateAuthoritySpec(signer_name=SIGNER, issues=IssuingTerms(names=("dns",))),
)
EARLIER = replace(AUTHORITY, metadata=replace(AUTHORITY.metadata, uid="c0"))
URL = LINKS.to("new-order")
TARGET = RequestTarget(AUTHORITY, LINKS, URL)
KEY, OTHER_KEY = generate("ES256"), generate("ES256")
USER = UserInfo(username="system:serviceaccount:web:frontend", uid="u1")


def account_key(key: TokenKey = KEY) -> AccountKey:
    return read_jwk_text(json.dumps(public(key)))


ACCOUNT = AcmeAccount(
    metadata=ObjectMeta(name="mine", namespace="web", uid="a1", creation_timestamp=NOW),
    spec=AcmeAccountSpec(
        authority="servers",
        authority_uid="c1",
        jwk=account_key().text,
        thumbprint=account_key().thumbprint,
    ),
)
KID = LINKS.to("account", "web", "mine")


def changed(account: AcmeAccount = ACCOUNT, **spec: Any) -> AcmeAccount:
    return replace(account, spec=replace(account.spec, **spec))


@contextlib.contextmanager
def refused(type_: str, text: str = "", code: int = 0) -> Iterator[None]:
    with pytest.raises(AcmeProblem) as caught:
        yield
    assert text in str(caught.value)
    assert caught.value.type == type_
    assert code in (0, caught.value.status)


# -- signed requests -------------------------------------------------------------------------------


class Accounts:
    """One account, as its cache has it."""

    def __init__(self, account: AcmeAccount | None = ACCOUNT, user: UserInfo | None = USER) -> None:
        self.account, self.user = account, user
        self.by_key: AcmeAccount | None = None
        self.count = 0

    async def fresh(self) -> None: ...

    def find(self, namespace: str, name: str) -> AcmeAccount | None:
        return self.account if (namespace, name) == ("web", "mine") else None

    def user_of(self, _account: AcmeAccount) -> UserInfo | None:
        return self.user

    def of_key(self, _authority: CertificateAuthority, _thumbprint: str) -> AcmeAccount | None:
        return self.by_key

    def count_of(self, _kid: str) -> int:
        return self.count


class Front:
    """Signs requests and verifies them."""

    def __init__(self, accounts: Accounts | None = None) -> None:
        self.nonces = Nonces(lambda: b"k" * 32, MovingClock())
        accounts_: Any = accounts or Accounts()
        self.requests = SignedRequests(accounts_, self.nonces)
        self.nonce = self.nonces.issue() or ""

    async def read(
        self, key: TokenKey = KEY, http: dict[str, Any] | None = None, **header: Any
    ) -> VerifiedRequest:
        members = {"alg": "ES256", "url": URL, "nonce": self.nonce, "kid": KID, **header}
        head = b64({name: value for name, value in members.items() if value is not None})
        body = b64({})
        signature = b64(key.sign(f"{head}.{body}".encode()))
        sent = json.dumps({"protected": head, "payload": body, "signature": signature})
        parts = {"method": "POST", "too_large": False, "body": sent.encode(), **(http or {})}
        media = parts.pop("media", "application/jose+json")
        peer = SimpleNamespace(address="127.0.0.1")
        exchange: Any = SimpleNamespace(
            http=SimpleNamespace(**parts, peer=peer),
            head=SimpleNamespace(client=SimpleNamespace(media=media)),
        )
        return await self.requests.read(exchange, TARGET)


async def test_a_request_by_account_or_key_is_verified() -> None:
    front = Front()

    found = await front.read()
    front.nonce = front.nonces.issue() or ""
    by_key = await front.read(kid=None, jwk=public(KEY))

    assert (found.account, found.user) == (ACCOUNT, USER)
    assert (by_key.account, by_key.user) == (None, None)


@pytest.mark.parametrize(
    ("http", "header", "type_", "code"),
    [
        ({"method": "GET"}, {}, "malformed", 405),
        ({"too_large": True}, {}, "malformed", 413),
        ({"media": "application/json"}, {}, "malformed", 415),
        ({}, {"url": URL + "s"}, "unauthorized", 0),
        ({}, {"jwk": public(KEY)}, "malformed", 0),
        ({}, {"kid": None}, "malformed", 0),
        ({}, {"nonce": "A" * 54}, "badNonce", 0),
        ({}, {"nonce": "A" * 54, "kid": LINKS.to("account", "web", "none")}, "badNonce", 0),
        ({}, {"kid": "mine"}, "accountDoesNotExist", 0),
        ({}, {"kid": LINKS.to("account", "web", "none")}, "accountDoesNotExist", 0),
        ({}, {"kid": Links(BASE, "x").to("account", "web", "mine")}, "accountDoesNotExist", 0),
    ],
)
async def test_each_part_of_a_request_is_checked(
    http: dict[str, Any], header: dict[str, Any], type_: str, code: int
) -> None:
    with refused(type_, code=code):
        await Front().read(http=http, **header)


async def test_the_account_of_another_authority_does_not_exist() -> None:
    """Its URL is below this authority, and its key has signed."""
    front = Front(Accounts(changed(authority="clients")))

    with refused("accountDoesNotExist"):
        await front.read()


@pytest.mark.parametrize(
    "spec", [{"authority_uid": "c0"}, {"authority": "clients"}], ids=["uid", "name"]
)
async def test_the_account_of_an_earlier_authority_does_not_exist(spec: dict[str, str]) -> None:
    """One of the same name, which was deleted, or of another name."""
    with refused("accountDoesNotExist"):
        await Front(Accounts(changed(**spec))).read()


@pytest.mark.parametrize(
    ("name", "authority", "is_accepted"),
    [
        (account_name(AUTHORITY, ACCOUNT.spec.thumbprint), "servers", True),
        (account_name(AUTHORITY, ACCOUNT.spec.thumbprint), "clients", False),
        (account_name(EARLIER, ACCOUNT.spec.thumbprint), "servers", False),
        (account_name(AUTHORITY, "key before a change"), "servers", False),
    ],
    ids=["its own", "another authority", "an earlier authority", "another key"],
)
def test_an_account_without_the_uid_of_its_authority_is_known_by_its_name(
    name: str, authority: str, is_accepted: bool
) -> None:
    """Earlier versions stored no uid; the name was derived from it, and from the first key."""
    spec = changed(authority_uid="", authority=authority).spec
    account = AcmeAccount(metadata=ObjectMeta(name=name, namespace="web"), spec=spec)

    assert is_account_of(account, AUTHORITY) == is_accepted


def test_no_account_belongs_to_an_authority_without_a_uid() -> None:
    unstored = replace(AUTHORITY, metadata=ObjectMeta(name="servers"))

    assert not is_account_of(ACCOUNT, unstored)


async def test_an_account_without_the_uid_of_its_authority_gets_it_with_a_change() -> None:
    """With a new key its name would not belong to the authority any more."""
    client, stored = Client(), changed(authority_uid="")

    await account_pages(client=client).show(
        verified({"status": "deactivated"}, stored, target=at("web", "mine"))
    )

    assert client.updated[0].spec.authority_uid == "c1"


async def test_the_signature_of_a_stranger_uses_up_no_nonce() -> None:
    """Neither as the account nor with a key in the header."""
    front = Front()

    for header in ({}, {"kid": None, "jwk": public(KEY)}):
        with refused("malformed", "signature"):
            await front.read(OTHER_KEY, **header)

    assert (await front.read()).account == ACCOUNT


async def test_a_request_is_accepted_once() -> None:
    front = Front()
    await front.read()

    with refused("badNonce"):
        await front.read()


async def test_an_account_that_ended_may_do_nothing() -> None:
    front = Front(Accounts(user=None))

    with refused("unauthorized", "deactivated"):
        await front.read()


def test_a_nonce_that_was_dropped_stays_refused() -> None:
    """Also if nonces that are older were used after it, and are dropped later."""
    clock = MovingClock()
    nonces = Nonces(lambda: b"k" * 32, clock, most_used=2)
    issued = []
    for second in range(6):
        clock.ahead = timedelta(seconds=second)
        issued.append(nonces.issue() or "")
    for number in (3, 0):  # each is a generation
        nonces.use(issued[number])
    for number in (4, 5):
        nonces.use(issued[number])

    for number in (0, 1, 3):
        with refused("badNonce"):
            nonces.use(issued[number])


@pytest.mark.parametrize(
    ("url", "account"),
    [
        (KID, ("web", "mine")),
        (KID + "/x", None),
        (LINKS.to("account", "web"), None),
        (LINKS.to("account", "web", ""), None),
        (LINKS.to("account", "", "mine"), None),
        (LINKS.to("order", "web", "mine"), None),
        (LINKS.to("account", "web", "m" * LONGEST_PATH), None),
    ],
)
def test_a_kid_is_the_url_of_an_account(url: str, account: tuple[str, str] | None) -> None:
    assert LINKS.account_of(url) == account


def verified(payload: Any = None, account: AcmeAccount | None = ACCOUNT, **more: Any) -> Any:
    parts = {
        "target": TARGET,
        "key": account_key(),
        "nonce": "n",
        "moment": 10,
        "source": "",
        **more,
    }
    data = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
    return VerifiedRequest(
        payload=data, account=account, user=USER if account is not None else None, **parts
    )


def at(*rest: str, url: str = URL) -> RequestTarget:
    return RequestTarget(AUTHORITY, LINKS, url, rest)


# -- orders ----------------------------------------------------------------------------------------

DER = request_for("a.example.com")
LEAF_KEY = ec.generate_private_key(ec.SECP256R1())
LEAF = chains.make(key=LEAF_KEY).public_bytes(serialization.Encoding.DER)
ORDER = AcmeOrder(
    metadata=ObjectMeta(
        name="one", namespace="web", owner_references=(owner_reference(ACCOUNT, "v1"),)
    ),
    spec=AcmeOrderSpec(
        account="mine",
        identifiers=(AcmeIdentifier(type="dns", value="a.example.com"),),
        expires=NOW + timedelta(hours=1),
    ),
)
RECORD = IssuedCertificate(
    spec=IssuedCertificateSpec(
        signer_name=SIGNER,
        names=("a.example.com",),
        requester=Requester(username=USER.username, uid=USER.uid),
    )
)


class Orders:
    """One order, one certificate, and what the test says."""

    def __init__(self, **found: Any) -> None:
        self.record: IssuedCertificate | None = RECORD
        self.others: list[AcmeOrder] = []
        self.states = [OrderState(READY)]
        self.replacing_count, self.given_counts = 0, OrderCounts(0, 0)
        self.created: list[Any] = []
        vars(self).update(found)

    async def fresh(self) -> None: ...

    def find(self, namespace: str, name: str) -> AcmeOrder | None:
        return ORDER if name == "one" else None

    def certificate(self, identifier: str) -> IssuedCertificate | None:
        if identifier == "odd":
            raise MalformedId("odd")
        return self.record

    def of_serial(self, _serial: bytes) -> IssuedCertificate | None:
        return self.record

    def replacing(self, _certificate: str) -> list[AcmeOrder]:
        return self.others

    def count_replacing(self, _certificate: str) -> int:
        return self.replacing_count

    def counts(self, account: tuple[str, str]) -> OrderCounts:
        assert account == ("web", "mine")
        return self.given_counts

    def state(
        self, _order: AcmeOrder, user: UserInfo, authority: CertificateAuthority
    ) -> OrderState:
        assert (user, authority) == (USER, AUTHORITY)
        return self.states.pop(0) if len(self.states) > 1 else self.states[0]

    # as a client

    @property
    def catalog(self) -> Any:
        kind = SimpleNamespace(api_version="v1", name="AcmeAccount")
        return SimpleNamespace(of=lambda _type: kind)

    async def create(self, new: Any) -> Any:
        self.created.append(new)
        return new

    async def update_status(self, new: Any) -> Any:
        self.created.append(new)

    @contextlib.contextmanager
    def acting(self, user: Any, _source: str, **_more: Any) -> Iterator[Any]:
        assert user == USER
        yield self

    def pages(self) -> OrderPages:
        me: Any = self
        return OrderPages(me, me, self.acting, MovingClock(), key_problem=lambda _sha256: "")


NEW = {"identifiers": [{"type": "dns", "value": "a.example.com"}]}


async def new_order(orders: Orders, **payload: Any) -> int:
    return (await orders.pages().new(verified({**NEW, **payload}))).code


def recorded(**spec: Any) -> IssuedCertificate:
    return replace(RECORD, spec=replace(RECORD.spec, **spec))


async def test_an_order_replaces_a_certificate_of_its_account() -> None:
    orders = Orders(others=[ORDER], states=[OrderState(PROCESSING), OrderState(READY)])

    assert await new_order(orders, replaces="id") == 201


@pytest.mark.parametrize(
    "record",
    [
        None,
        recorded(requester=Requester(username="system:serviceaccount:web:other", uid="u1")),
        recorded(requester=Requester(username=USER.username, uid="u0")),
        recorded(signer_name="example.com/clients"),
        recorded(names=("b.example.com",)),
    ],
)
async def test_the_certificate_of_another_is_not_replaced(record: IssuedCertificate | None) -> None:
    """Of another account, another authority, or for other names."""
    with refused("malformed", "no certificate of this account"):
        await new_order(Orders(record=record), replaces="id")


async def test_a_certificate_is_replaced_once() -> None:
    with refused("malformed", "odd"):
        await new_order(Orders(), replaces="odd")
    with refused("alreadyReplaced"):
        states = [OrderState(PROCESSING), OrderState(VALID)]
        await new_order(Orders(others=[ORDER, ORDER], states=states), replaces="id")
    with refused("rateLimited"):
        await new_order(Orders(replacing_count=MOST_REPLACING), replaces="id")
    assert await new_order(Orders(replacing_count=MOST_REPLACING - 1), replaces="id") == 201


@pytest.mark.parametrize(
    ("live", "recent", "text"),
    [
        (0, MOST_PER_MINUTE, "a minute"),
        (MOST_LIVE, 0, "did not fetch"),
        (MOST_LIVE - 1, MOST_PER_MINUTE - 1, ""),
    ],
)
async def test_orders_have_limits(live: int, recent: int, text: str) -> None:
    orders = Orders(given_counts=OrderCounts(live, recent))
    if not text:
        assert await new_order(orders) == 201
        return
    with refused("rateLimited", text):
        await new_order(orders)


async def test_orders_that_are_being_created_count() -> None:
    """Two requests at once: only one is the last that is permitted."""
    orders = Orders(given_counts=OrderCounts(0, MOST_PER_MINUTE - 1))
    pages = orders.pages()
    create = orders.create

    async def and_another(new: Any) -> Any:
        with refused("rateLimited"):
            await pages.new(verified(NEW))
        return await create(new)

    vars(orders)["create"] = and_another
    assert (await pages.new(verified(NEW))).code == 201
    vars(orders)["create"] = create
    assert (await pages.new(verified(NEW))).code == 201  # nothing is left


@pytest.mark.parametrize(
    ("times", "text"),
    [
        ({"notBefore": NOW.isoformat()}, "notBefore"),
        ({"notAfter": "2040-01-01T00:00:00"}, "time zone"),
        ({"notAfter": (NOW + timedelta(minutes=9)).isoformat()}, "notAfter must be"),
        ({"notAfter": (NOW + timedelta(days=25_000)).isoformat()}, "notAfter must be"),
    ],
)
async def test_times_of_an_order_are_checked(times: dict[str, str], text: str) -> None:
    with refused("malformed", text):
        await new_order(Orders(), **times)


async def test_a_key_without_an_account_orders_nothing() -> None:
    with refused("malformed", "kid"):
        await Orders().pages().new(verified(NEW, None))


async def test_an_order_that_exists_under_the_name_must_be_equal() -> None:
    orders = Orders()

    async def there(new: Any) -> Any:
        raise AlreadyExists(KIND.about("one"))

    async def get(_type: Any, _name: str, _namespace: str) -> AcmeOrder:
        return ORDER

    vars(orders).update(create=there, get=get)

    assert await new_order(orders) == 201
    with refused("malformed", "another order"):
        await new_order(orders, identifiers=[{"type": "dns", "value": "b.example.com"}])

    async def of_another(_type: Any, _name: str, _namespace: str) -> AcmeOrder:
        return ORDER.with_meta(owner_references=())

    vars(orders)["get"] = of_another
    with refused("malformed", "another order"):
        await new_order(orders)


@pytest.mark.parametrize("path", [(), ("web",), ("web", "two"), ("web", "one", "x")])
async def test_another_path_is_no_order(path: tuple[str, ...]) -> None:
    with refused("malformed", "no such order"):
        await Orders().pages().show(verified(b"", target=at(*path)))


@pytest.mark.parametrize(
    "account",
    [
        ACCOUNT.with_meta(name="other"),
        ACCOUNT.with_meta(namespace="prod"),
        ACCOUNT.with_meta(uid="a0"),
    ],
)
async def test_the_order_of_another_account_does_not_exist(account: AcmeAccount) -> None:
    """Of the same namespace, of the same name in another one, and of the name before."""
    pages = Orders().pages()
    path = (account.namespace, "one") if account.namespace == "web" else ("web", "one")

    for page in (pages.show, pages.certificate):
        with refused("malformed", "no such order"):
            await page(verified(b"", account, target=at(*path)))
    with refused("malformed", "no such order"):
        await pages.authorization(verified(b"", account, target=at(*path, "0")))


@pytest.mark.parametrize("index", ["", "-1", "1", "x", "²"])
async def test_another_number_is_no_authorization(index: str) -> None:
    pages = Orders().pages()

    with refused("malformed", "authorization"):
        await pages.authorization(verified(b"", target=at("web", "one", index)))
    assert (await pages.authorization(verified(b"", target=at("web", "one", "0")))).code == 200


async def test_what_is_only_read_has_no_payload() -> None:
    pages = Orders(states=[OrderState(VALID)]).pages()
    for page, path in (
        (pages.show, ("web", "one")),
        (pages.certificate, ("web", "one")),
        (pages.authorization, ("web", "one", "0")),
    ):
        with refused("malformed", "empty"):
            await page(verified(b"{}", target=at(*path)))


async def test_only_a_valid_order_has_a_certificate() -> None:
    with refused("malformed", "certificate"):
        await Orders().pages().certificate(verified(b"", target=at("web", "one")))


async def test_the_first_fetch_is_noted() -> None:
    orders = Orders(states=[OrderState(VALID, chain=pem.encode(pem.CERTIFICATE, LEAF))])
    fetched = replace(ORDER, status=AcmeOrderStatus(fetched=NOW))
    vars(orders)["find"] = lambda *_: fetched if orders.created else ORDER

    for _ in range(2):
        await orders.pages().certificate(verified(b"", target=at("web", "one")))

    assert len(orders.created) == 1
    assert orders.created[0].status.fetched is not None


def finalizing(der: bytes, **more: Any) -> VerifiedRequest:
    found: VerifiedRequest = verified(
        {"csr": b64(der)}, target=at("web", "one", "finalize"), **more
    )
    return found


def waiting(der: bytes) -> OrderState:
    spec = CertificateSigningRequestSpec(request=pem.encode(pem.CERTIFICATE_REQUEST, der))
    return OrderState(PROCESSING, request=CertificateSigningRequest(spec=spec))


async def test_finalizing_creates_the_request_once() -> None:
    orders = Orders(states=[OrderState(READY), waiting(DER)])

    await orders.pages().show(finalizing(DER))
    await orders.pages().show(finalizing(DER))

    (made,) = orders.created
    assert (made.name, made.spec.signer_name, made.spec.usages) == ("acme-one", SIGNER, ())


@pytest.mark.parametrize(
    ("der", "states", "type_", "text"),
    [
        (b"x", [OrderState(READY)], "badCSR", ""),
        (request_for("b.example.com"), [OrderState(READY)], "badCSR", "names in the request"),
        (request_for("a.example.com", key=KEY._private), [OrderState(READY)], "badCSR", "account"),
        (DER, [OrderState(PROCESSING)], "orderNotReady", ""),
        (DER, [waiting(request_for("a.example.com"))], "orderNotReady", ""),
    ],
)
async def test_each_part_of_finalizing_is_checked(
    der: bytes, states: list[OrderState], type_: str, text: str
) -> None:
    orders = Orders(states=states)

    with refused(type_, text):
        await orders.pages().show(finalizing(der))
    assert not orders.created


# -- revocation ------------------------------------------------------------------------------------

ISSUED = replace(
    RECORD,
    spec=replace(
        RECORD.spec,
        certificate=LEAF,
        key=CertificateKey(sha256=hashlib.sha256(spki(LEAF_KEY.public_key())).hexdigest()),
    ),
)


async def revoke(orders: Orders, request: VerifiedRequest | None = None) -> None:
    def acting(_user: Any, _source: Any, **_: Any) -> Any:
        return contextlib.nullcontext(orders)

    source: Any = orders
    await RevocationPage(source, acting).revoke(request or verified({"certificate": b64(LEAF)}))


async def test_the_account_or_the_key_revokes_a_certificate() -> None:
    orders = Orders(record=ISSUED)

    await revoke(orders)
    by_key = verified({"certificate": b64(LEAF)}, None, key=account_key(TokenKey(LEAF_KEY)))
    await revoke(orders, by_key)

    assert len(orders.created) == 2


def other_issued(**spec: Any) -> IssuedCertificate:
    return replace(ISSUED, spec=replace(ISSUED.spec, **spec))


@pytest.mark.parametrize(
    ("record", "request_", "type_"),
    [
        (None, {}, "malformed"),
        (other_issued(certificate=b"twin"), {}, "malformed"),
        (other_issued(signer_name="example.com/clients"), {}, "malformed"),
        (other_issued(requester=Requester(username="other", uid="u1")), {}, "unauthorized"),
        (other_issued(requester=Requester(username=USER.username)), {}, "unauthorized"),
        (ISSUED, {"account": None}, "unauthorized"),
        (ISSUED, {"payload": {"certificate": "AA"}}, "malformed"),
        (ISSUED, {"payload": {"certificate": "ü"}}, "malformed"),
        (ISSUED, {"payload": {"certificate": b64(LEAF), "reason": 6}}, "badRevocationReason"),
    ],
)
async def test_each_part_of_a_revocation_is_checked(
    record: IssuedCertificate | None, request_: dict[str, Any], type_: str
) -> None:
    orders = Orders(record=record)

    with refused(type_):
        await revoke(orders, verified(**{"payload": {"certificate": b64(LEAF)}, **request_}))
    assert not orders.created


# -- accounts --------------------------------------------------------------------------------------

SECRET = b"s" * 32
EXTERNAL = ExternalKey("web.eab", "web", "frontend", "u1", SECRET)


class Keys:
    def find(self, kid: str) -> ExternalKey | None:
        return EXTERNAL if kid == "web.eab" else None


def bound(
    secret: bytes = SECRET, key: TokenKey = KEY, payload: Any = None, **header: Any
) -> Flattened:
    members = {"alg": "HS256", "kid": "web.eab", "url": URL, **header}
    head, body = b64(members), b64(public(key) if payload is None else payload)
    mac = hmac.new(secret, f"{head}.{body}".encode(), "sha256").digest()
    return Flattened(protected=head, payload=body, signature=b64(mac))


@pytest.mark.parametrize(
    ("binding", "type_"),
    [
        (None, "externalAccountRequired"),
        (bound(alg="none"), "badSignatureAlgorithm"),
        (bound(alg="ES256"), "badSignatureAlgorithm"),
        (bound(url=URL + "x"), "malformed"),
        (bound(kid=""), "malformed"),
        (bound(jwk=public(KEY)), "malformed"),
        (bound(nonce="n"), "malformed"),
        (bound(kid="web.none"), "unauthorized"),
        (bound(b"\0", kid="web.none"), "unauthorized"),
        (bound(b"x" * 32), "unauthorized"),
        (bound(payload=b"no key"), "malformed"),
        (bound(key=OTHER_KEY), "malformed"),
    ],
)
def test_each_part_of_a_binding_is_checked(binding: Flattened | None, type_: str) -> None:
    keys: Any = Keys()

    with refused(type_):
        verify_binding(binding, keys, account_key(), URL)
    assert verify_binding(bound(), keys, account_key(), URL) == EXTERNAL


class Client(Orders):
    def __init__(self) -> None:
        super().__init__()
        self.updated: list[AcmeAccount] = []

    async def update(self, new: AcmeAccount) -> None:
        self.updated.append(new)


def account_pages(accounts: Accounts | None = None, client: Client | None = None) -> AccountPages:
    parts: Any = accounts or Accounts(), Keys(), client or Client()
    return AccountPages(*parts)


def new_account(**payload: Any) -> VerifiedRequest:
    binding = bound()
    flat = {name: getattr(binding, name) for name in ("protected", "payload", "signature")}
    found: VerifiedRequest = verified({"externalAccountBinding": flat, **payload}, None)
    return found


async def test_an_account_needs_a_key_and_room() -> None:
    full, ended = Accounts(), Accounts(user=None)
    full.count, ended.by_key = 1000, ACCOUNT

    assert (await account_pages().new(new_account())).code == 201
    with refused("malformed", "jwk"):
        await account_pages().new(verified({}))
    with refused("rateLimited"):
        await account_pages(full).new(new_account())
    full.count = 999
    assert (await account_pages(full).new(new_account())).code == 201
    with refused("unauthorized", "deactivated"):
        await account_pages(ended).new(new_account())
    with refused("accountDoesNotExist"):
        await account_pages().new(new_account(onlyReturnExisting=True))
    with refused("unsupportedContact"):
        await account_pages().new(new_account(contact=["tel:1"]))


@pytest.mark.parametrize(
    "there",
    [
        None,
        changed(thumbprint="other"),
        changed(authority="clients"),
        changed(authority_uid="c0"),
        changed(service_account_name="other", service_account_uid="u1"),
        changed(service_account_name="frontend", service_account_uid="u2"),
    ],
)
async def test_an_account_of_the_expected_name_must_be_the_same(there: AcmeAccount | None) -> None:
    client, accounts = Client(), Accounts()

    async def exists(_new: Any) -> Any:
        raise AlreadyExists(KIND.about("one"))

    def find(_namespace: str, _name: str) -> AcmeAccount | None:
        return there

    vars(client)["create"], vars(accounts)["find"] = exists, find
    with refused("malformed", "belongs to an account", 409):
        await account_pages(accounts, client).new(new_account())
    there = changed(service_account_name="frontend", service_account_uid="u1")
    assert (await account_pages(accounts, client).new(new_account())).code == 200


async def test_an_account_changes_itself_only() -> None:
    pages, own = account_pages(), at("web", "mine")

    with refused("malformed", "no such account"):
        await pages.show(verified(b"", target=at("web", "other")))
    with refused("malformed", "no such account"):
        await pages.show(verified(b"", target=at("prod", "mine")))
    with refused("malformed", "deactivated"):
        await pages.show(verified({"status": "revoked"}, target=own))
    with refused("unsupportedContact"):
        await pages.show(verified({"contact": ["tel:1"]}, target=own))
    with refused("badNonce"):
        later = changed(last_change=10)
        await pages.show(verified({"status": "deactivated"}, later, target=own))
    client = Client()
    earlier = changed(last_change=9)
    ended = verified({"status": "deactivated"}, earlier, target=own)
    await account_pages(client=client).show(ended)
    assert client.updated[0].spec.state == "deactivated"


def key_change(
    new: TokenKey = OTHER_KEY, old: TokenKey = KEY, account: str = KID, **header: Any
) -> bytes:
    members = {"alg": "ES256", "url": URL, "jwk": public(new), **header}
    head = b64({name: value for name, value in members.items() if value is not None})
    body = b64({"account": account, "oldKey": public(old)})
    signature = b64(new.sign(f"{head}.{body}".encode()))
    return json.dumps({"protected": head, "payload": body, "signature": signature}).encode()


@pytest.mark.parametrize(
    ("payload", "text"),
    [
        (key_change(url=URL + "x"), "same url"),
        (key_change(jwk=None), "same url"),
        (key_change(kid=KID), "same url"),
        (key_change(nonce="n"), "nonce"),
        (key_change(jwk=public(KEY)), "signature"),
        (key_change(account=KID + "x"), "another account"),
        (key_change(old=OTHER_KEY), "oldKey is not"),
    ],
)
async def test_each_part_of_a_key_change_is_checked(payload: bytes, text: str) -> None:
    client = Client()

    with refused("malformed", text):
        await account_pages(client=client).change_key(verified(payload))
    assert not client.updated


async def test_a_key_in_use_is_not_taken() -> None:
    accounts, client = Accounts(), Client()
    accounts.by_key = ACCOUNT

    with refused("malformed", "belongs to an account", 409):
        await account_pages(accounts).change_key(verified(key_change()))
    await account_pages(client=client).change_key(verified(key_change()))
    assert client.updated[0].spec.thumbprint == account_key(OTHER_KEY).thumbprint


def test_contacts_are_mail_addresses() -> None:
    refuse_contacts(("mailto:a@example.com", "MAILTO:b@example.com"))

    for contact, type_ in (
        ("tel:1", "unsupportedContact"),
        ("mailto:", "invalidContact"),
        ("mailto:a@b,c@d", "invalidContact"),
        ("a@example.com", "invalidContact"),
    ):
        with refused(type_):
            refuse_contacts(("mailto:a@example.com", contact))
