"""Token exchange (RFC 8693): POST /oauth2/token[?account=NAMESPACE/NAME].

The caller is anonymous; its credential is the subject token. The account is in the URL, because no
client has a parameter for it. Errors are those of RFC 6749, section 5.2; the description names only
values of the token, and the id under which the audit record has the reason.
"""

from typing import Final

import msgspec

from orchid.features.exchange.exchanger import (
    LIMITED,
    TARGET,
    UNAVAILABLE,
    ExchangeRefused,
    TokenExchanger,
    WantedToken,
)
from orchid.features.exchange.subject_tokens import SubjectToken
from orchid.features.exchange.uses import PolicyUses
from orchid.features.introspection.addresses import AddressLimits, AddressOverLimit
from orchid.features.introspection.forms import (
    JSON,
    NO_STORE,
    TOO_MANY_REQUESTS,
    UNAVAILABLE_STATUS,
    FormParameters,
    OAuthRefusal,
    read_form,
)
from orchid.kernel.http.messages import Response
from orchid.kernel.server.request_state import RequestState
from orchid.kernel.server.respond import head
from orchid.kernel.wire.errors import Unavailable
from orchid.kernel.wire.naming import EXPIRES_PARAMETER, Naming

PATH: Final = "/oauth2/token"
GRANT: Final = "urn:ietf:params:oauth:grant-type:token-exchange"
_TYPE: Final = "urn:ietf:params:oauth:token-type:"
JWT, ID_TOKEN, ACCESS_TOKEN = f"{_TYPE}jwt", f"{_TYPE}id_token", f"{_TYPE}access_token"
TARGETS: Final = ("audience", "resource")  # parameters that may be repeated
MOST_TARGETS: Final = 16
SHORTEST: Final = 60  # seconds
LONGEST_DIGITS: Final = 9
LONGEST_ACCOUNT: Final = 512


class TokenExchange:
    """The page; call it with an exchange."""

    def __init__(
        self, naming: Naming, exchanger: TokenExchanger, limits: AddressLimits, uses: PolicyUses
    ) -> None:
        self._exchanger = exchanger
        self._limits = limits
        self._uses = uses
        annotation = naming.extra
        self._issued_id = naming.issued_credential_id
        self._refusal_key = annotation("exchange-refusal")
        self._policy_key = annotation("exchange-policy")
        self._issuer_key = annotation("exchange-issuer")
        self._subject_key = annotation("exchange-subject")
        self._credential_key = annotation("exchange-credential-id")

    async def __call__(self, state: RequestState) -> Response:
        try:
            return await self._limited(state)
        except OAuthRefusal as refusal:
            raise refusal.with_audit_id(state.audit_id) from None

    async def _limited(self, state: RequestState) -> Response:
        try:
            place = self._limits.enter(state.http.peer.address)
        except AddressOverLimit as limit:
            raise _later("too many requests from this address", limit.retry_after) from None
        try:
            return await self._answer(state)
        except Unavailable as problem:
            text = f"the server cannot answer now: {problem}"
            raise _later(text, 1, status=UNAVAILABLE_STATUS) from None
        finally:
            self._limits.leave(place)

    async def _answer(self, state: RequestState) -> Response:
        form = read_form(state, repeatable=TARGETS)
        issued_type = _check_types(form)
        requested = WantedToken(
            subject_token=form.token("subject_token"),
            account=_account(state),
            audiences=_audiences(form),
            seconds=_seconds(form.get(EXPIRES_PARAMETER)),
        )
        try:
            issued = await self._exchanger.exchange(requested)
        except ExchangeRefused as refusal:
            self._annotate(state, refusal.subject, {self._refusal_key: refusal.reason})
            raise _refused(refusal) from None
        policy = issued.policy
        notes = {
            self._policy_key: f"{policy}@{policy.revision}",
            self._issued_id: issued.credential_id,
        }
        self._annotate(state, issued.subject, notes)
        self._uses.used(policy, state.now)
        body = {
            "access_token": issued.token,
            "issued_token_type": issued_type,
            "token_type": "Bearer",
            "expires_in": issued.seconds,
        }
        if form.get("scope"):
            body["scope"] = ""
        return Response(200, head(state, JSON, cache=NO_STORE), msgspec.json.encode(body))

    def _annotate(
        self, state: RequestState, subject: SubjectToken | None, notes: dict[str, str]
    ) -> None:
        """Add notes to the audit record, and the outside identity, once it is verified."""
        if state.request is None:
            return
        if subject is not None:
            notes[self._issuer_key], notes[self._subject_key] = subject.issuer, subject.subject
            if subject.jti:
                notes[self._credential_key] = f"JTI={subject.jti}"
        state.request.audit_annotations.update(notes)


def _check_types(form: FormParameters) -> str:
    """Refuse other grants and types of tokens; return the type of the issued token."""
    if form.get("grant_type") != GRANT:
        code = "unsupported_grant_type" if form.get("grant_type") else "invalid_request"
        raise OAuthRefusal(code, f"grant_type must be {GRANT}")
    if not form.token("subject_token"):
        raise OAuthRefusal("invalid_request", "the parameter subject_token is missing")
    if form.get("subject_token_type") not in (JWT, ID_TOKEN):
        raise OAuthRefusal("invalid_request", f"subject_token_type must be {JWT} or {ID_TOKEN}")
    if form.get("actor_token") or form.get("actor_token_type"):
        raise OAuthRefusal("invalid_request", "actor_token is not supported")
    issued_type = form.get("requested_token_type") or ACCESS_TOKEN
    if issued_type not in (ACCESS_TOKEN, JWT):
        text = f"requested_token_type must be {ACCESS_TOKEN} or {JWT}"
        raise OAuthRefusal("invalid_request", text)
    return issued_type


def _account(state: RequestState) -> tuple[str, str] | None:
    """The account of the URL."""
    for name in state.query:
        if name != "account":
            text = "the query may only have the parameter account; all others belong in the form"
            raise OAuthRefusal("invalid_request", text)
    accounts = state.query.get("account", [])
    if len(accounts) > 1:
        raise OAuthRefusal("invalid_request", "the parameter account occurs twice")
    if not accounts:
        return None
    namespace, _, name = accounts[0].partition("/")
    if not namespace or not name or "/" in name or len(accounts[0]) > LONGEST_ACCOUNT:
        raise OAuthRefusal("invalid_request", "account must be NAMESPACE/NAME")
    return namespace, name


def _audiences(form: FormParameters) -> tuple[str, ...]:
    audiences = tuple(value for name in TARGETS for value in form.all(name) if value)
    if len(audiences) > MOST_TARGETS:
        text = f"audience and resource may occur {MOST_TARGETS} times together"
        raise OAuthRefusal("invalid_target", text)
    return audiences


def _seconds(text: str) -> int:
    if not text:
        return 0
    is_number = text.isascii() and text.isdigit() and len(text) <= LONGEST_DIGITS
    if not is_number or int(text) < SHORTEST:
        text = f"{EXPIRES_PARAMETER} must be a number of seconds, {SHORTEST} or more"
        raise OAuthRefusal("invalid_request", text)
    return int(text)


def _refused(refusal: ExchangeRefused) -> OAuthRefusal:
    if refusal.outcome == UNAVAILABLE:
        return _later(refusal.text, refusal.retry_after, status=UNAVAILABLE_STATUS)
    if refusal.outcome == LIMITED:
        return _later(refusal.text, refusal.retry_after)
    return OAuthRefusal(
        "invalid_target" if refusal.outcome == TARGET else "invalid_request", refusal.text
    )


def _later(text: str, seconds: int, *, status: int = TOO_MANY_REQUESTS) -> OAuthRefusal:
    return OAuthRefusal(
        "temporarily_unavailable",
        text,
        status=status,
        headers=b"Retry-After: %d\r\n" % max(1, seconds),
    )
