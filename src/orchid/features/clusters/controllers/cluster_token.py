"""The token of an account of a cluster, by which Orchid reads there, and its successor.

The API server of the cluster issues the successor. It is checked before it is stored, because a
token that cannot be read would be read again after each restart: it is for the same account, its
times are whole numbers of this age, it is still valid, and it is fit for a request.
"""

import binascii
from typing import Annotated, Any, Final

import msgspec

from orchid.kernel.credentials.keys import b64url_decode
from orchid.kernel.outbound import foreign
from orchid.kernel.outbound.answer import Answer
from orchid.kernel.outbound.failures import AnswerRefused
from orchid.kernel.outbound.kubeconfig import UnusableKubeconfig, fit_token
from orchid.kernel.wire.naming import KUBERNETES
from orchid.kernel.wire.rules.names import label_errors, subdomain_errors

RENEWED_AFTER: Final = 0.5  # of its lifetime
SHORTEST: Final = 600  # seconds; a cluster issues none for less
LONGEST: Final = 10 * 366 * 86400  # seconds
LARGEST: Final = 64 << 10  # characters
ACCOUNT: Final = "system:serviceaccount:"
CREATED: Final = 201

Moment = Annotated[int, msgspec.Meta(ge=0, lt=1 << 40)]  # seconds; no fraction, nothing infinite


class ClusterToken(msgspec.Struct, frozen=True):
    """The claims of a token of an account."""

    sub: str
    iat: Moment
    exp: Moment

    @property
    def lifetime(self) -> int:
        return self.exp - self.iat

    def is_due(self, now: float) -> bool:
        return now >= self.iat + RENEWED_AFTER * self.lifetime


class _Status(msgspec.Struct):
    token: str


class _Issued(msgspec.Struct):
    status: _Status


def token_in(kubeconfig: Any) -> ClusterToken | None:
    """That of the first user; None if it is a certificate, or a token without account or times."""
    try:
        return read_token(kubeconfig["users"][0]["user"]["token"])
    except (KeyError, IndexError, TypeError, AnswerRefused):
        return None


def read_token(token: Any) -> ClusterToken:
    """The claims of a token that can be renewed; raises AnswerRefused. Nothing is verified."""
    if not isinstance(token, str) or len(token) > LARGEST:
        raise AnswerRefused("the token is too long")
    try:
        payload = b64url_decode(token.split(".")[1].encode("ascii"))
    except (IndexError, ValueError, binascii.Error):
        raise AnswerRefused("the token is no JWT") from None
    claims = foreign.decode(payload, ClusterToken)
    _require_account(claims.sub)
    if not SHORTEST <= claims.lifetime <= LONGEST:
        raise AnswerRefused("the token has no lifetime between ten minutes and ten years")
    return claims


def _require_account(subject: str) -> None:
    prefix, _, rest = subject.rpartition(ACCOUNT)
    namespace, _, name = rest.partition(":")
    if prefix or not subject.startswith(ACCOUNT):
        raise AnswerRefused("the token is not that of an account")
    if label_errors(namespace, prefix=False) or subdomain_errors(name):
        raise AnswerRefused("the token is of an account whose name is none")


def renewal(token: ClusterToken) -> tuple[str, bytes]:
    """The path and the body of the request for its successor."""
    namespace, _, name = token.sub.removeprefix(ACCOUNT).partition(":")
    body = {
        "apiVersion": f"{KUBERNETES.authentication}/v1",
        "kind": "TokenRequest",
        "spec": {"expirationSeconds": token.lifetime},
    }
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"
    return path, msgspec.json.encode(body)


def successor(answer: Answer, old: ClusterToken, now: float) -> str:
    """The token in the answer; raises AnswerRefused unless it can take the place of the old."""
    if answer.status != CREATED:
        raise AnswerRefused(f"answered with status {answer.status}", answer.status)
    text = foreign.decode(answer.body, _Issued).status.token
    token = read_token(text)
    if token.sub != old.sub:
        raise AnswerRefused("the new token is of another account")
    if token.is_due(now):
        raise AnswerRefused("the new token has to be renewed already")
    try:
        return fit_token(text, "the answer").reveal()
    except UnusableKubeconfig as problem:
        raise AnswerRefused(str(problem)) from None
