"""TokenRequest from end to end: the checks in order, the claims, and every refusal."""

import base64
import json
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa

from orchid.features.accounts.kinds.service_account import ServiceAccount
from orchid.features.accounts.kinds.token_request import (
    BoundObjectReference,
    RequestToken,
    TokenRequest,
    TokenRequestSpec,
    with_default_lifetime,
)
from orchid.features.accounts.token_issuer import (
    InvalidIssuingSettings,
    IssuingSettings,
    TokenIssuer,
)
from orchid.features.objects.kinds.node import Node
from orchid.features.objects.kinds.pod.pod import Pod
from orchid.features.objects.kinds.secret import Secret
from orchid.kernel.credentials.keys import TokenKey, generate
from orchid.kernel.credentials.tokens import TokenSigner
from orchid.kernel.engine.request import Request, Target
from orchid.kernel.wire.errors import ApiError, BadRequest, Conflict, Invalid, NotFound
from orchid.kernel.wire.meta import ObjectMeta
from orchid.kernel.wire.naming import ORCH
from orchid.kernel.wire.struct import replace
from orchid.kernel.wire.user import UserInfo
from tests.unit.kernel.access.presenting import API, Repeatable
from tests.unit.kernel.access.world import World

KEY = generate()
NS = "ci"


def meta(name: str, uid: str, namespace: str = NS) -> ObjectMeta:
    return ObjectMeta(name=name, namespace=namespace, uid=uid)


ACCOUNT = ServiceAccount(metadata=meta("builder", "uid-sa"))
POD = Pod(metadata=meta("p1", "uid-pod"), spec={"serviceAccountName": "builder"})
SECRET = Secret(metadata=meta("s1", "uid-secret"))
NODE = Node(metadata=meta("n1", "uid-node", namespace=""))


def issuer(here: World, key: TokenKey = KEY, **settings: Any) -> TokenIssuer:
    signer = TokenSigner(key, API[0], ORCH.private_claim)
    return TokenIssuer(IssuingSettings(API, **settings), lambda: signer, here.feed, Repeatable())


def request_of(here: World, name: str = "builder") -> Request:
    target = Target(
        "create", is_resource=True, resource="serviceaccounts", namespace=NS, name=name,
        subresource="token",
    )  # fmt: skip
    return Request(target, UserInfo("admin"), here.clock.now())


async def ask(
    here: World,
    *,
    metadata: ObjectMeta | None = None,
    request: Request | None = None,
    settings: dict[str, Any] | None = None,
    **spec: Any,
) -> TokenRequest:
    new = TokenRequest(metadata=metadata or ObjectMeta(), spec=TokenRequestSpec(**spec))
    acting = RequestToken(ORCH, issuer(here, **(settings or {})))
    return await acting.create(with_default_lifetime(new), request or request_of(here))


def claims_of(answer: TokenRequest) -> dict[str, Any]:
    payload = answer.status.token.split(".")[1]
    claims: dict[str, Any] = json.loads(base64.urlsafe_b64decode(payload + "=="))
    return claims


@pytest.fixture(autouse=True)
async def _objects(here: World) -> None:
    for one in (ACCOUNT, POD, SECRET, NODE):
        await here.put(one)


async def test_defaults_are_filled_in_and_echoed(here: World) -> None:
    """No audience and no lifetime mean the API's audiences and one hour."""
    answer = await ask(here)

    assert answer.metadata.name == "builder"
    assert answer.metadata.namespace == NS
    assert answer.metadata.uid == "uid-sa"
    assert answer.metadata.creation_timestamp == here.clock.now()
    assert answer.spec.audiences == API
    assert answer.spec.expiration_seconds == 3600
    assert answer.status.expiration_timestamp is not None
    ends = answer.status.expiration_timestamp - here.clock.now()
    assert ends.total_seconds() == 3600


async def test_claims_are_the_references(here: World) -> None:
    """Members, types and values as the contract lists them."""
    answer = await ask(here, audiences=("a", "b"), expiration_seconds=600)

    issued_at = int(here.clock.now().timestamp())
    assert claims_of(answer) == {
        "aud": ["a", "b"],
        "exp": issued_at + 600,
        "iat": issued_at,
        "iss": API[0],
        "jti": "00000000-0000-4000-8000-000000000001",
        "nbf": issued_at,
        "orch.io": {"namespace": NS, "serviceaccount": {"name": "builder", "uid": "uid-sa"}},
        "sub": "system:serviceaccount:ci:builder",
    }


async def test_issued_credential_is_noted_for_the_audit_by_its_id_alone(here: World) -> None:
    """The record names the token's id and never the token."""
    request = request_of(here)

    answer = await ask(here, request=request)

    key = "authentication.orch.io/issued-credential-id"
    assert request.audit_annotations == {key: "JTI=00000000-0000-4000-8000-000000000001"}
    assert answer.status.token not in str(request)


@pytest.mark.parametrize("seconds", [600, 4294967296])
async def test_shortest_and_longest_lifetimes_are_accepted(here: World, seconds: int) -> None:
    """Ten minutes and 2^32 seconds are both inside."""
    answer = await ask(here, expiration_seconds=seconds)

    assert answer.spec.expiration_seconds == seconds


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (599, "may not specify a duration less than 10 minutes"),
        (0, "may not specify a duration less than 10 minutes"),
        (-1, "may not specify a duration less than 10 minutes"),
        (4294967297, "may not specify a duration larger than 2^32 seconds"),
    ],
)
async def test_lifetimes_outside_are_refused_without_a_name(
    here: World, seconds: int, text: str
) -> None:
    """422, and the reference leaves the name out of this one."""
    with pytest.raises(Invalid) as refusal:
        await ask(here, expiration_seconds=seconds)

    assert refusal.value.message == (
        'TokenRequest.authentication.orch.io "" is invalid: '
        f"spec.expirationSeconds: Invalid value: {seconds}: {text}"
    )


async def test_server_maximum_shortens_with_a_warning(here: World) -> None:
    """A longer lifetime is not refused: it is shortened, with a warning."""
    request = request_of(here)

    answer = await ask(
        here, request=request, settings={"longest_seconds": 7200}, expiration_seconds=9000
    )

    assert answer.spec.expiration_seconds == 7200
    assert request.warnings == ["requested expiration of 9000 seconds shortened to 7200 seconds"]
    assert claims_of(answer)["exp"] - claims_of(answer)["iat"] == 7200


@pytest.mark.parametrize("seconds", [1, 3599, (1 << 32) + 1])
def test_unfit_server_maximum_is_refused_at_start(seconds: int) -> None:
    """Between an hour and 2^32 seconds, or none."""
    with pytest.raises(InvalidIssuingSettings, match="between 1 hour and 2"):
        IssuingSettings(API, longest_seconds=seconds)


async def test_missing_account_is_not_found(here: World) -> None:
    """404 with the resource's name."""
    with pytest.raises(NotFound, match='serviceaccounts "ghost" not found'):
        await ask(here, request=request_of(here, "ghost"))


async def test_body_that_names_another_account_is_refused(here: World) -> None:
    """422 before anything is looked up, so it does not reveal which objects exist."""
    with pytest.raises(Invalid) as refusal:
        await ask(here, metadata=ObjectMeta(name="zzz"), request=request_of(here, "ghost"))

    assert refusal.value.message == (
        'TokenRequest.authentication.orch.io "ghost" is invalid: metadata.name: '
        'Invalid value: "zzz": must match the service account name if specified'
    )


async def test_uid_of_an_earlier_account_is_a_conflict(here: World) -> None:
    """Delete and recreate between reading the account and asking for its token: 409."""
    earlier = ACCOUNT.metadata.uid
    await here.delete(ACCOUNT)
    await here.put(replace(ACCOUNT, metadata=meta("builder", "uid-new")))

    with pytest.raises(Conflict) as refusal:
        await ask(here, metadata=ObjectMeta(uid=earlier))

    assert refusal.value.message == (
        'Operation cannot be fulfilled on TokenRequest.authentication.orch.io "builder": '
        "the UID in the token request (uid-sa) does not match "
        "the UID of the service account (uid-new)"
    )


async def test_pod_binding_claims_pod_and_node(here: World) -> None:
    """A scheduled Pod's node goes along, with its uid if it is known."""
    await here.put(replace(POD, spec={"serviceAccountName": "builder", "nodeName": "n1"}))

    answer = await ask(here, bound_object_ref=BoundObjectReference("Pod", "v1", "p1"))

    private = claims_of(answer)["orch.io"]
    assert private["pod"] == {"name": "p1", "uid": "uid-pod"}
    assert private["node"] == {"name": "n1", "uid": "uid-node"}
    assert answer.spec.bound_object_ref == BoundObjectReference("Pod", "v1", "p1")


async def test_pod_on_an_unknown_node_claims_its_name_alone(here: World) -> None:
    """The Node object may be missing; the name is still true."""
    await here.put(replace(POD, spec={"serviceAccountName": "builder", "nodeName": "gone"}))

    answer = await ask(here, bound_object_ref=BoundObjectReference("Pod", "", "p1", "uid-pod"))

    assert claims_of(answer)["orch.io"]["node"] == {"name": "gone"}


@pytest.mark.parametrize(
    ("kind", "name", "claim"),
    [("Secret", "s1", "secret"), ("Node", "n1", "node")],
)
async def test_secret_and_node_binding(here: World, kind: str, name: str, claim: str) -> None:
    """Both are claimed with their live uid."""
    answer = await ask(here, bound_object_ref=BoundObjectReference(kind, "v9", name))

    assert claims_of(answer)["orch.io"][claim] == {"name": name, "uid": f"uid-{claim}"}


@pytest.mark.parametrize(
    ("reference", "error", "text"),
    [
        (("Pod", "v1", "ghost"), NotFound, 'pods "ghost" not found'),
        (("Secret", "v1", "ghost"), NotFound, 'secrets "ghost" not found'),
        (("Node", "v1", "ghost"), NotFound, 'nodes "ghost" not found'),
        (
            ("Pod", "v1", "p1", "nope"),
            Conflict,
            'Operation cannot be fulfilled on Pod "p1": the UID in the bound object reference '
            "(nope) does not match the UID in record. The object might have been deleted and "
            "then recreated",
        ),
        (
            ("ConfigMap", "v1", "x"),
            BadRequest,
            "cannot bind token to object of type /v1, Kind=ConfigMap",
        ),
        (
            ("Pod", "apps/v1", "p1"),
            BadRequest,
            "cannot bind token to object of type apps/v1, Kind=Pod",
        ),
        (("pod", "a/b/c", "p1"), BadRequest, "cannot bind token to object of type /, Kind=pod"),
        ((), BadRequest, "cannot bind token to object of type /, Kind="),
        (("Pod", "v1", ""), BadRequest, "Name parameter required."),
        (
            ("Secret", "v1", "../x"),
            BadRequest,
            "Name parameter invalid: \"../x\": may not contain '/'",
        ),
        (("Node", "v1", ".."), BadRequest, "Name parameter invalid: \"..\": may not be '..'"),
        (("Node", "v1", "%"), BadRequest, "Name parameter invalid: \"%\": may not contain '%'"),
    ],
)
async def test_unfit_bound_object_is_refused(
    here: World, reference: tuple[str, ...], error: type[ApiError], text: str
) -> None:
    """Each with the reference's code and words."""
    with pytest.raises(error) as refusal:
        await ask(here, bound_object_ref=BoundObjectReference(*reference))

    assert refusal.value.message == text


async def test_pod_of_another_account_is_refused_before_its_uid_is_compared(here: World) -> None:
    """400: a token cannot be bound to a Pod of another account."""
    await here.put(replace(POD, spec={"serviceAccountName": "other"}))

    with pytest.raises(BadRequest) as refusal:
        await ask(here, bound_object_ref=BoundObjectReference("Pod", "v1", "p1", "nope"))

    assert refusal.value.message == (
        'cannot bind token for serviceaccount "builder" to pod running with different '
        "serviceaccount name."
    )


@pytest.mark.parametrize(
    ("longest", "lasts"), [(0, 31536000), (31536001, 31536000), (7200, 7200), (3607, 3607)]
)
async def test_node_agents_lifetime_is_extended_with_a_warning_claim(
    here: World, longest: int, lasts: int
) -> None:
    """3607 seconds, for a Pod and the API: a year or the maximum; warnafter as asked."""
    answer = await ask(
        here,
        expiration_seconds=3607,
        bound_object_ref=BoundObjectReference("Pod", "v1", "p1"),
        settings={"longest_seconds": longest},
    )

    claims = claims_of(answer)
    assert claims["exp"] - claims["iat"] == lasts
    assert claims["orch.io"]["warnafter"] == claims["iat"] + 3607
    assert answer.status.expiration_timestamp is not None
    ends = answer.status.expiration_timestamp - here.clock.now()
    assert ends.total_seconds() == 3607


@pytest.mark.parametrize(
    ("spec", "settings"),
    [
        ({"expiration_seconds": 3607}, {}),
        ({"expiration_seconds": 3608, "bound": True}, {}),
        ({"expiration_seconds": 3607, "bound": True, "audiences": (*API, "x")}, {}),
        ({"expiration_seconds": 3607, "bound": True}, {"extends_lifetime": False}),
    ],
)
async def test_no_other_token_is_extended(
    here: World, spec: dict[str, Any], settings: dict[str, Any]
) -> None:
    """Unbound, another lifetime, another audience, or switched off."""
    if spec.pop("bound", False):
        spec["bound_object_ref"] = BoundObjectReference("Pod", "v1", "p1")

    answer = await ask(here, settings=settings, **spec)

    claims = claims_of(answer)
    assert claims["exp"] - claims["iat"] == spec["expiration_seconds"]
    assert "warnafter" not in claims["orch.io"]


async def test_what_the_client_says_of_itself_comes_back_but_not_its_status(here: World) -> None:
    """Labels stay, a status sent along is cleared."""
    answer = await ask(here, metadata=ObjectMeta(labels={"a": "b"}, uid="uid-sa"))

    assert answer.metadata.labels == {"a": "b"}


async def test_rsa_signature_is_made_outside_the_loop(here: World) -> None:
    """A slow key gives the same token from a thread of the issuer's own."""
    key = TokenKey(rsa.generate_private_key(public_exponent=65537, key_size=2048))
    made = issuer(here, key)

    answer = await RequestToken(ORCH, made).create(
        with_default_lifetime(TokenRequest()), request_of(here)
    )
    made.close()

    header = json.loads(base64.urlsafe_b64decode(answer.status.token.split(".")[0] + "=="))
    assert header == {"alg": "RS256", "kid": key.kid}
