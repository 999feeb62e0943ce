"""Mapping of the claims of an external issuer to a user.

Start with `user_of`. It is a pure function of claims and settings: its result may be cached as long
as the claims are trusted. The order of the steps is that of Kubernetes, because the first refusal
is reported. Whatever a token holds, the outcome is a user or `Rejected`.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from orchid.features.sign_in.oidc.claim_configuration import ClaimOrExpression, Rule
from orchid.features.sign_in.oidc.configuration import IssuerSettings
from orchid.kernel.credentials.token_claims import Payload
from orchid.kernel.engine.interfaces import Rejected
from orchid.kernel.expressions.cel import Expression, ExpressionInput, Failed
from orchid.kernel.wire.naming import Naming
from orchid.kernel.wire.text import quote
from orchid.kernel.wire.user import UserInfo

Extra = dict[str, tuple[str, ...]]

_EXPRESSION = "error evaluating {} claim expression"


def user_of(claims: Payload, settings: IssuerSettings, naming: Naming) -> UserInfo:
    """Map claims, then apply the rules for claims and for users."""
    variables = ExpressionInput(claims)
    user = UserInfo(
        username=_username(claims, settings.username, variables),
        groups=_groups(claims, settings.groups, variables),
        uid=_uid(claims, settings.uid, variables),
        extra=_extra(claims, settings.extra, variables, naming.credential_id),
    )
    for claim, expected in settings.required_claims:
        _require(claims, claim, expected)
    _insist(settings.claim_rules, variables, "error evaluating claim validation expression")
    _insist(settings.user_rules, _seen(user), "error evaluating user info validation rule")
    return user


def username_of(claims: Payload, settings: IssuerSettings) -> str:
    """The user whose token it is, whatever it may be used for; "" if it names none."""
    try:
        return _username(claims, settings.username, ExpressionInput(claims))
    except Rejected:
        return ""


def _username(claims: Payload, mapping: ClaimOrExpression, variables: ExpressionInput) -> str:
    if isinstance(mapping, Expression):
        name = _one_text(mapping, variables, "username")
        if not name:
            raise Rejected("oidc: empty username via CEL expression is not allowed")
        return name
    context = f"oidc: parse username claims {quote(mapping.claim)}"
    value = claims.get(mapping.claim)
    if value is None:
        raise Rejected(f"{context}: claim not present")
    if not isinstance(value, str) or not value:
        raise Rejected(f"{context}: claim is not a string with content")
    if mapping.claim == "email":
        _refuse_unverified_email(claims)
    return mapping.prefix + value


def _refuse_unverified_email(claims: Payload) -> None:
    # Absent is accepted, as in Kubernetes: many issuers never send it.
    if claims.get("email_verified") is not None and claims["email_verified"] is not True:
        raise Rejected("oidc: email not verified")


def _groups(
    claims: Payload, mapping: ClaimOrExpression | None, variables: ExpressionInput
) -> tuple[str, ...]:
    if mapping is None:
        return ()
    if isinstance(mapping, Expression):
        return _texts(mapping, variables, f"oidc: {_EXPRESSION.format('group')}")
    value = claims.get(mapping.claim)
    if value is None:
        return ()
    listed = [value] if isinstance(value, str) else value
    if not isinstance(listed, list) or not all(isinstance(group, str) for group in listed):
        raise Rejected(f"oidc: parse groups claim {quote(mapping.claim)}: not a list of strings")
    return tuple(mapping.prefix + group for group in listed)


def _uid(claims: Payload, mapping: ClaimOrExpression | None, variables: ExpressionInput) -> str:
    if mapping is None:
        return ""
    if isinstance(mapping, Expression):
        return _one_text(mapping, variables, "uid")
    value = claims.get(mapping.claim)
    if not isinstance(value, str):
        context = f"oidc: parse uid claim {quote(mapping.claim)}"
        raise Rejected(f"{context}: claim not present or not a string")
    return value


def _extra(
    claims: Payload,
    mappings: Iterable[tuple[str, Expression]],
    variables: ExpressionInput,
    credential_id: str,
) -> Extra:
    extra: Extra = {}
    jti = claims.get("jti")
    if isinstance(jti, str) and jti:
        extra[credential_id] = (f"JTI={jti}",)
    for key, expression in mappings:
        context = f"oidc: {_EXPRESSION.format('extra')}"
        if values := _texts(expression, variables, context, f"{expression.source}: "):
            extra[key] = values
    return extra


def _require(claims: Mapping[str, Any], claim: str, expected: str) -> None:
    value = claims.get(claim)
    if value is None:
        raise Rejected(f"oidc: required claim {claim} not present in ID token")
    if not isinstance(value, str):
        raise Rejected(f"oidc: required claim {claim} is not a string")
    if value != expected:
        shown = quote(value[:256])
        raise Rejected(
            f"oidc: required claim {claim} value does not match. Got = {shown}, want = {expected}"
        )


def _insist(rules: Iterable[Rule], variables: ExpressionInput, context: str) -> None:
    """All rules are evaluated first: evaluation errors are reported before failed rules."""
    try:
        outcomes = [(rule, rule.expression.holds(variables)) for rule in rules]
    except Failed as failed:
        raise Rejected(f"oidc: {context}: {failed}") from None
    for rule, outcome in outcomes:
        if outcome is None:
            raise Rejected(f"oidc: {context}: validation expression must return a boolean")
        if not outcome:
            failure = f"validation expression '{rule.expression.source}' failed: {rule.message}"
            raise Rejected(f"oidc: {context}: {failure}")


def _seen(user: UserInfo) -> ExpressionInput:
    return ExpressionInput(
        {
            "username": user.username,
            "uid": user.uid,
            "groups": user.groups,
            "extra": user.extra,
        }
    )


def _one_text(expression: Expression, variables: ExpressionInput, word: str) -> str:
    context = f"oidc: {_EXPRESSION.format(word)}"
    try:
        text = expression.text(variables)
    except Failed as failed:
        raise Rejected(f"{context}: {failed}") from None
    if text is None:
        raise Rejected(f"{context}: {word} claim expression must return a string")
    return text


def _texts(
    expression: Expression, variables: ExpressionInput, context: str, shown: str = ""
) -> tuple[str, ...]:
    try:
        texts = expression.texts(variables)
    except Failed as failed:
        raise Rejected(f"{context}: {failed}") from None
    if texts is None:
        raise Rejected(f"{context}: {shown}expression must return a string or a list of strings")
    return texts
