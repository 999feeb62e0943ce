"""Certificates: what nobody gets signed, what proves nobody, and what breaks nothing."""

import asyncio
import base64
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec

from orchid.features.accounts.token_issuer import TokenIssuer
from orchid.features.approving.controllers.approve_requests import ApproveRequests
from orchid.features.certificates.controllers.sign_requests import SignRequests
from orchid.features.certificates.kinds.certificate_signing_request import CertificateSigningRequest
from orchid.kernel.credentials.refusals import MalformedRequest
from orchid.kernel.credentials.x509 import names, pem
from orchid.kernel.credentials.x509.certificates import encode
from orchid.kernel.http.messages import Peer
from orchid.kernel.runtime.loop import TryAgain
from orchid.kernel.settings.errors import BadSettings
from orchid.kernel.wire.naming import ORCH
from orchid.kernel.wire.struct import replace
from orchid.kernel.wire.user import UserInfo
from tests.api.callers import VIEWER
from tests.api.world import ADMIN, ALICE, BOB, Api, api
from tests.data import hostile
from tests.security.certified import cluster_authority, issued, other_authority, twin
from tests.unit.features.beside import Beside, beside, policies_loaded
from tests.unit.kernel.credentials import samples
from tests.unit.kernel.credentials.samples import STRING_TYPES, attribute, name, raw_request, utf8

REQUESTS = "/apis/certificates.orch.io/v1/certificatesigningrequests"
BUNDLES = "/apis/certificates.orch.io/v1beta1/clustertrustbundles"
RBAC = "/apis/rbac.authorization.orch.io/v1"
SELF = "/apis/authentication.orch.io/v1/selfsubjectreviews"
APPROVER, SIGNER = "approver-token-0004", "signer-token-0005"
MASTERS = "system:masters"
LARGE = 500_000


@pytest.fixture
async def world(server_files: Path) -> AsyncIterator[Beside]:
    async with beside(server_files) as made:
        yield made


def asking(request: bytes, signer: str = ORCH.client_signer, called: str = "c") -> Any:
    usages = ["digital signature", "client auth"]
    spec = {"request": base64.b64encode(request).decode(), "signerName": signer, "usages": usages}
    return {"metadata": {"name": called}, "spec": spec}


async def approved(server: Api, called: str, signer: str) -> Any:
    """An approved request without a certificate."""
    made = await server.make(REQUESTS, asking(samples.request("jane"), signer, called))
    answer = await server.call("PUT", f"{REQUESTS}/{called}/approval", decided(made))
    assert answer.status == 200, answer.text
    return answer.json


def decided(request: Any) -> Any:
    condition = {"type": "Approved", "status": "True", "reason": "R", "message": "m"}
    return {**request, "status": {"conditions": [condition]}}


def signed(request: Any, certificate: bytes) -> Any:
    status = {**request["status"], "certificate": base64.b64encode(certificate).decode()}
    return {**request, "status": status}


# --- system:masters -------------------------------------------------------------------------------

SPELLINGS = {
    "plain": MASTERS,
    "trailing-nul": f"{MASTERS}\x00",
    "blanks": f" {MASTERS} ",
    "zero-width": "system:\u200bmasters",
    "wide": "system\uff1amasters",
    "upper": MASTERS.upper(),
    "soft-hyphen": "system:mas\u00adters",
}


def requests_for_masters() -> dict[str, bytes]:
    """In every spelling, string type and shape of a name."""
    user, harmless = utf8(names.COMMON_NAME, "eve"), utf8(names.ORGANIZATION, "dev")
    made = {}
    for spelling, text in SPELLINGS.items():
        for kind, (tag, codec) in STRING_TYPES.items():
            if kind == "teletex" and not text.isascii():
                continue  # those octets are other letters there, and so another group
            group = attribute(names.ORGANIZATION, tag, text.encode(codec))
            shapes = {
                "alone": name((group,), (user,)),
                "one of several": name((harmless,), (group,), (user,)),
                "multi-valued": name((harmless, group), (user,)),
                "beside the user": name((user, group)),
                "last": name((user,), (harmless,), (group,)),
            }
            for shape, subject in shapes.items():
                made[f"{spelling} {kind} {shape}"] = samples.as_pem(raw_request(subject))
    return made


async def test_nobody_asks_for_masters_in_any_encoding(server: Api) -> None:
    """At create: refused, and nothing stored (0hardik1/kubesplaining#97)."""
    wanted = requests_for_masters()
    before = await server.server.store.revision()
    let_through = [
        label
        for label, request in wanted.items()
        if (await server.call("POST", REQUESTS, asking(request))).status not in (403, 422)
    ]

    assert len(wanted) > 200
    assert let_through == []
    assert await server.server.store.revision() == before


async def test_nobody_is_signed_as_masters_in_any_encoding(world: Beside) -> None:
    """At sign: should one ever get past the door and be approved, it fails."""
    (controller,) = world.made("csrsigning")
    assert isinstance(controller, SignRequests)
    followers: list[asyncio.Task[None]] = []
    await controller.follow(lambda each: followers.append(asyncio.create_task(each)))
    wanted = [r for label, r in requests_for_masters().items() if label.endswith(("alone", "ued"))]
    made = await world.request("m", samples.request("eve"), approved=True)
    for request in wanted:
        smuggled = replace(made, spec=replace(made.spec, request=request))
        try:
            await world.until(lambda one=smuggled: tried(controller, one))
        except MalformedRequest:
            continue
        after = await world.admin.get(type(made), "m")
        assert after.has("Failed")
        assert not after.is_issued
        await world.admin.delete(type(made), "m")
        made = await world.request("m", samples.request("eve"), approved=True)
    for each in followers:
        each.cancel()
    await asyncio.wait(followers)


async def tried(controller: SignRequests, request: CertificateSigningRequest) -> bool:
    """Whether the controller knew its authorities already."""
    try:
        await controller.reconcile(request)
    except TryAgain:
        return False
    return True


# --- who may ask, approve, sign and attest --------------------------------------------------------

MINE, OTHERS = "example.com/mine", "example.com/others"
ROLES = {"approve": APPROVER, "sign": SIGNER, "attest": VIEWER, "nothing": BOB}
USERS = {"approve": "approver", "sign": "signer", "attest": "viewer", "nothing": "bob"}


async def give_roles(server: Api) -> None:
    """All callers may write every endpoint; they differ only in the verb on one signer."""
    group = {"apiGroups": ["certificates.orch.io"]}
    endpoints = [f"certificatesigningrequests/{one}" for one in ("approval", "status")]
    common = [
        {**group, "resources": endpoints, "verbs": ["update", "patch"]},
        {**group, "resources": ["clustertrustbundles"], "verbs": ["create"]},
    ]
    for verb, user in USERS.items():
        own = {**group, "resources": ["signers"], "verbs": [verb], "resourceNames": [MINE]}
        meta = {"metadata": {"name": f"test-{verb}"}}
        rules = [*common, own] if verb != "nothing" else common
        await server.make(f"{RBAC}/clusterroles", {**meta, "rules": rules})
        reference = {"apiGroup": "rbac.authorization.orch.io"}
        await server.make(
            f"{RBAC}/clusterrolebindings",
            {
                **meta,
                "roleRef": {"kind": "ClusterRole", "name": f"test-{verb}", **reference},
                "subjects": [{"kind": "User", "name": user, **reference}],
            },
        )


async def test_each_verb_on_a_signer_needs_its_own_right(server: Api) -> None:
    """The matrix of who (approve, sign, attest, nothing) does what to which signer."""
    await give_roles(server)
    certificate = issued(cluster_authority(server.server.files.path), "jane").chain
    anchor = other_authority().certificate_pem.decode()
    allowed = set()
    for who, token in ROLES.items():
        for signer in (MINE, OTHERS):
            word = f"{who}-{signer.partition('/')[2]}"
            pending = await server.make(REQUESTS, asking(samples.request("j"), signer, f"p-{word}"))
            waiting = await approved(server, f"w-{word}", signer)
            bundle = {
                "metadata": {"name": f"{signer.replace('/', ':')}:{word}"},
                "spec": {"signerName": signer, "trustBundle": anchor},
            }
            tried = {
                "approve": await server.call(
                    "PUT", f"{REQUESTS}/p-{word}/approval", decided(pending), token=token
                ),
                "sign": await server.call(
                    "PUT", f"{REQUESTS}/w-{word}/status", signed(waiting, certificate), token=token
                ),
                "attest": await server.call("POST", BUNDLES, bundle, token=token),
            }
            assert {answer.status for answer in tried.values()} <= {200, 201, 403}
            allowed |= {
                (who, verb, signer) for verb, answer in tried.items() if answer.status != 403
            }

    assert allowed == {(verb, verb, MINE) for verb in ("approve", "sign", "attest")}


async def test_who_asks_cannot_approve_by_that(server: Api) -> None:
    """The right to create requests, and even to write approvals, approves nothing."""
    group = {"apiGroups": ["certificates.orch.io"]}
    rules = [
        {**group, "resources": ["certificatesigningrequests"], "verbs": ["create", "get"]},
        {**group, "resources": ["certificatesigningrequests/approval"], "verbs": ["update"]},
    ]
    reference = {"apiGroup": "rbac.authorization.orch.io"}
    await server.make(f"{RBAC}/clusterroles", {"metadata": {"name": "asks"}, "rules": rules})
    await server.make(
        f"{RBAC}/clusterrolebindings",
        {
            "metadata": {"name": "asks"},
            "roleRef": {"kind": "ClusterRole", "name": "asks", **reference},
            "subjects": [{"kind": "User", "name": "alice", **reference}],
        },
    )
    made = await server.make(REQUESTS, asking(samples.request("alice")), token=ALICE)

    answer = await server.call("PUT", f"{REQUESTS}/c/approval", decided(made), token=ALICE)
    born = await server.call(
        "POST", REQUESTS, decided(asking(samples.request("alice"), called="d")), token=ALICE
    )

    assert answer.status == 403
    assert "conditions" not in born.json["status"]


async def test_names_that_nobody_vouches_for_are_never_approved_by_themselves(
    world: Beside,
) -> None:
    """Serving certificates wait for a person, and so does any request that brings host names."""
    (controller,) = world.made("csrapproving")
    assert isinstance(controller, ApproveRequests)
    await policies_loaded(controller)
    node = UserInfo(username="system:node:n1", groups=("system:nodes", MASTERS))
    subject = ("system:node:n1", ("system:nodes",))
    host = (x509.DNSName("api.example.com"),)
    client, serving = ("digital signature", "client auth"), ("digital signature", "server auth")
    for index, (signer, usages, request) in enumerate(
        [
            (ORCH.node_serving_signer, serving, samples.request(*subject, alternative_names=host)),
            (ORCH.node_client_signer, client, samples.request(*subject, alternative_names=host)),
            (ORCH.client_signer, client, samples.request(*subject)),
        ]
    ):
        made = await world.request(f"r{index}", request, signer=signer, usages=usages, user=node)
        await controller.reconcile(made)
        assert not (await world.admin.get(type(made), made.name)).is_decided


# --- what proves nobody ---------------------------------------------------------------------------


async def whoami(server: Api, certificate: bytes) -> int:
    return (await server.call("POST", SELF, {}, token=None, peer=Peer("", certificate))).status


async def test_a_forged_twin_of_a_certificate_proves_nobody(server: Api) -> None:
    """Same serial number, names and key ids, another key (CVE-2024-2048)."""
    good = issued(cluster_authority(server.server.files.path), "root", MASTERS)
    original = x509.load_der_x509_certificate(good.der)
    stranger = ec.generate_private_key(ec.SECP256R1())

    assert await whoami(server, good.der) == 201
    assert await whoami(server, twin(original, stranger)) == 401


async def test_an_authority_of_the_same_name_and_key_id_proves_nobody(server: Api) -> None:
    """An authority with the same name as ours cannot issue for us."""
    ours = cluster_authority(server.server.files.path).certificate
    key = ec.generate_private_key(ec.SECP256R1())
    forged = x509.load_der_x509_certificate(twin(ours, key))
    good = issued(cluster_authority(server.server.files.path), "root", MASTERS)
    leaf = twin(x509.load_der_x509_certificate(good.der), key)
    peer = Peer("", leaf, chain=(encode(forged),))

    assert (await server.call("POST", SELF, {}, token=None, peer=peer)).status == 401


async def test_a_trust_anchor_that_is_a_leaf_stops_the_start(
    server_files: Path, tmp_path: Path
) -> None:
    """A certificate trusted directly would skip the checks of names and usages (CVE-2025-6037)."""
    leaf = issued(cluster_authority(server_files), "jane")
    file = tmp_path / "clients.crt"
    for text in (leaf.chain.partition(b"-----END CERTIFICATE-----\n")[0], leaf.chain):
        file.write_bytes(text + b"-----END CERTIFICATE-----\n" if text != leaf.chain else text)

        with pytest.raises(BadSettings, match="not an authority's"):
            async with api(server_files, client_ca_file=str(file)):
                pass


async def test_a_leaf_is_not_published_as_a_trust_anchor(server: Api) -> None:
    """A bundle holds authorities only."""
    leaf = issued(cluster_authority(server.server.files.path), "jane").chain.decode()
    body = {"metadata": {"name": "b"}, "spec": {"trustBundle": leaf}}

    assert (await server.call("POST", BUNDLES, body)).status == 422


async def test_the_authority_itself_is_no_client(server: Api) -> None:
    """Its certificate is public; shown as a client's it names nobody."""
    ours = cluster_authority(server.server.files.path).certificate

    assert await whoami(server, encode(ours)) == 401


# --- what breaks nothing --------------------------------------------------------------------------


def large(kind: str) -> dict[str, bytes]:
    """Texts of about a megabyte that are almost PEM."""
    label = pem.CERTIFICATE_REQUEST if kind == hostile.REQUEST else pem.CERTIFICATE
    return (
        {
            sample.name: sample.data
            for sample in hostile.corpus()
            if sample.kind == kind
            and len(sample.data) > LARGE
            and label.encode() not in sample.data
        }
        | {
            f"{kind}: begin and {word}": f"-----BEGIN {label}-----\n".encode() + fill * (1 << 20)
            for word, fill in {
                "dashes": b"-",
                "ends": b"\n",
                "colons": b":",
                "blanks": b" ",
            }.items()
        }
        | {f"{kind}: begins": f"-----BEGIN {label}-----\n".encode() * 30_000}
    )


async def test_a_megabyte_of_hostile_pem_is_refused_as_request_certificate_and_bundle(
    server: Api,
) -> None:
    """A 4xx each, and the server continues to serve (CVE-2024-12401)."""
    refused = []
    for data in large(hostile.REQUEST).values():
        refused.append(await server.call("POST", REQUESTS, asking(data)))
    for data in large(hostile.BUNDLE).values():
        text = data.decode("latin-1")
        body = {"metadata": {"name": "b"}, "spec": {"trustBundle": text}}
        refused.append(await server.call("POST", BUNDLES, body))
    waiting = await approved(server, "w", MINE)
    for data in large(hostile.CERTIFICATE).values():
        body = signed(waiting, data)
        refused.append(await server.call("PUT", f"{REQUESTS}/w/status", body))

    assert len(refused) > 20
    assert {answer.status for answer in refused} <= {400, 403, 413, 422}
    assert max(len(answer.body) for answer in refused) < 2 << 20
    assert (await server.call("GET", REQUESTS)).status == 200


class PanicException(BaseException):
    """As the X.509 library raises it: not an ordinary Exception."""


def panic(*_: Any, **__: Any) -> Any:
    raise PanicException("index out of bounds")


@pytest.mark.parametrize(
    ("broken", "attempt"),
    [
        (
            "load_der_x509_csr",
            lambda server: server.call("POST", REQUESTS, asking(samples.request("p1"))),
        ),
        (
            "load_der_x509_certificate",
            lambda server: server.call(
                "POST",
                BUNDLES,
                {
                    "metadata": {"name": "b"},
                    "spec": {"trustBundle": other_authority("x").certificate_pem.decode()},
                },
            ),
        ),
        (
            "load_der_x509_certificate",
            lambda server: server.call("POST", SELF, {}, token=None, peer=Peer("", CLIENT.der)),
        ),
    ],
    ids=["request", "bundle", "client"],
)
async def test_a_panic_in_the_x509_parser_fails_the_request_alone(
    broken: str,
    attempt: Callable[[Api], Any],
    server: Api,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The request is a 4xx and the worker lives (pyca/cryptography#15331)."""
    waiting = attempt(server)
    monkeypatch.setattr(x509, broken, panic)
    answer = await waiting
    monkeypatch.undo()

    assert 400 <= answer.status < 500
    assert "index out of bounds" not in answer.text
    assert (await server.call("GET", REQUESTS, token=ADMIN)).status == 200


CLIENT = issued(other_authority(), "jane")


async def test_a_panic_that_no_guard_meets_fails_the_request_alone(
    server: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Anywhere else it is a bare 500, and the connection and the worker go on."""
    monkeypatch.setattr(TokenIssuer, "account_uid", panic)
    target = "/api/v1/namespaces/default/serviceaccounts/robot/token"
    answer = await server.call("POST", target, {"spec": {"audiences": []}})

    assert answer.status == 500
    assert "index out of bounds" not in answer.text
    assert (await server.call("GET", REQUESTS, token=ADMIN)).status == 200
