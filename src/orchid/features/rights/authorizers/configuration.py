"""The AuthorizationConfiguration file: the authorizers, their order and settings.

`read_configuration` returns one `AuthorizerSettings` for each; all errors are reported together, by
path, in one InvalidAuthorization. A condition that cannot run stops the start, since it might keep
a request from the webhook that would have denied it.

Nothing is opened here except to check that files exist; the assembly builds the authorizers.
"""

import os
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path as FilePath
from typing import Final

import msgspec

from orchid.features.rights.authorizers.webhook import VERSIONS, WebhookSettings
from orchid.kernel.expressions.cel import Compiler, ExpressionUnusable, LibraryMissing
from orchid.kernel.wire.codec import yaml_text
from orchid.kernel.wire.codec.documents import decoder_of, strict_error
from orchid.kernel.wire.codec.field_validation import Undecodable
from orchid.kernel.wire.fields import (
    FieldError,
    Path,
    duplicate,
    invalid,
    required,
    too_many,
    unsupported,
)
from orchid.kernel.wire.naming import SETS
from orchid.kernel.wire.options import seconds_of
from orchid.kernel.wire.rules.names import subdomain_errors
from orchid.kernel.wire.struct import Wire

WEBHOOK: Final = "Webhook"
TYPES: Final = ("Node", "RBAC", WEBHOOK)
FAILURE_POLICIES: Final = ("NoOpinion", "Deny")
KUBECONFIG: Final = "KubeConfigFile"
LONGEST_TIMEOUT: Final = 30.0
MOST_CONDITIONS: Final = 64
API_VERSIONS: Final = tuple(
    f"{names.server_config}/{version}" for names in SETS.values() for version in ("v1", "v1beta1")
)


class InvalidAuthorization(ValueError):
    """The file is invalid. The message lists all errors, each with its path."""


class AuthorizerSettings(msgspec.Struct, frozen=True):
    type: str
    name: str
    webhook: WebhookSettings | None = None


# The file as written; once validated it becomes AuthorizerSettings.


class _Connection(Wire):
    type: str = ""
    kube_config_file: str = ""


class _Condition(Wire):
    expression: str = ""


class _Webhook(Wire):
    authorized_ttl: str = msgspec.field(default="", name="authorizedTTL")
    cache_authorized_requests: bool = True
    unauthorized_ttl: str = msgspec.field(default="", name="unauthorizedTTL")
    cache_unauthorized_requests: bool = True
    timeout: str = ""
    subject_access_review_version: str = ""
    match_condition_subject_access_review_version: str = ""
    failure_policy: str = ""
    connection_info: _Connection = _Connection()
    match_conditions: tuple[_Condition, ...] = ()


class _Authorizer(Wire):
    type: str = ""
    name: str = ""
    webhook: _Webhook | None = None


class _File(Wire):
    kind: str = ""
    api_version: str = ""
    authorizers: tuple[_Authorizer, ...] = ()


def default_name(type_: str) -> str:
    """The name of an authorizer that can occur only once."""
    return type_.lower()


def read_configuration(
    text: bytes, compiler: Compiler, *, must_have: Collection[str] = ()
) -> tuple[AuthorizerSettings, ...]:
    """Parse and validate an AuthorizationConfiguration (YAML or JSON)."""
    sent = _decoded(text)
    if sent.kind != "AuthorizationConfiguration" or sent.api_version not in API_VERSIONS:
        raise InvalidAuthorization(
            f"an AuthorizationConfiguration of {' or '.join(API_VERSIONS)} is expected, "
            f"not {sent.kind!r} of {sent.api_version!r}"
        )
    try:
        errors = [str(error) for error in _errors(sent.authorizers, compiler)]
    except LibraryMissing as problem:
        raise InvalidAuthorization(str(problem)) from None
    missing = sorted(set(must_have) - {authorizer.type for authorizer in sent.authorizers})
    if missing:
        errors.append(f"authorizers: these were configured at the start and must stay: {missing}")
    if errors:
        raise InvalidAuthorization("; ".join(errors))
    return tuple(map(_checked, sent.authorizers))


def _decoded(text: bytes) -> _File:
    try:
        yaml_text.load_only(text)  # a second document would be ignored
        sent, findings = decoder_of(_File).decode(text, yaml=True)
    except (Undecodable, yaml_text.YamlError) as problem:
        raise InvalidAuthorization(str(problem)) from None
    if findings:
        raise InvalidAuthorization(strict_error(findings))
    return sent


def _checked(sent: _Authorizer) -> AuthorizerSettings:
    if sent.webhook is None:
        return AuthorizerSettings(sent.type, sent.name)
    webhook, usual = sent.webhook, WebhookSettings()
    allowed = _seconds(webhook.authorized_ttl) or usual.allowed_seconds
    refused = _seconds(webhook.unauthorized_ttl) or usual.refused_seconds
    settings = WebhookSettings(
        version=webhook.subject_access_review_version,
        allowed_seconds=allowed if webhook.cache_authorized_requests else 0.0,
        refused_seconds=refused if webhook.cache_unauthorized_requests else 0.0,
        denies_on_failure=webhook.failure_policy == "Deny",
        kubeconfig=webhook.connection_info.kube_config_file,
        timeout=_seconds(webhook.timeout),
        conditions=tuple(condition.expression for condition in webhook.match_conditions),
    )
    return AuthorizerSettings(sent.type, sent.name, settings)


def _errors(authorizers: Sequence[_Authorizer], compiler: Compiler) -> Iterator[FieldError]:
    root = Path("authorizers")
    if not authorizers:
        yield required(root, "at least one authorization mode must be defined")
    types: set[str] = set()
    names: set[str] = set()
    for index, sent in enumerate(authorizers):
        path = root[index]
        if not sent.type:
            yield required(path / "type")
        elif sent.type not in TYPES:
            yield unsupported(path / "type", sent.type, TYPES)
        elif sent.type in types and sent.type != WEBHOOK:
            yield duplicate(path / "type", sent.type)
        else:
            yield from _name_errors(path / "name", sent, names)
            yield from _webhook_errors(path / "webhook", sent, compiler)
        types.add(sent.type)
        names.add(sent.name)


def _name_errors(path: Path, sent: _Authorizer, taken: Collection[str]) -> Iterator[FieldError]:
    if not sent.name:
        yield required(path)
    elif sent.name in taken:
        yield duplicate(path, sent.name)
    elif sent.type != WEBHOOK and sent.name != default_name(sent.type):
        yield invalid(path, sent.name, f"must be {default_name(sent.type)!r} for type {sent.type}")
    else:
        for text in subdomain_errors(sent.name):
            yield invalid(path, sent.name, f"authorizer name is invalid: {text}")


def _webhook_errors(path: Path, sent: _Authorizer, compiler: Compiler) -> Iterator[FieldError]:
    webhook = sent.webhook
    if sent.type != WEBHOOK:
        if webhook is not None:
            yield invalid(path, "non-null", "may only be specified when type=Webhook")
    elif webhook is None:
        yield required(path, "required when type=Webhook")
    else:
        yield from _time_errors(path, webhook)
        yield from _choice_errors(path, webhook)
        yield from _connection_errors(path / "connectionInfo", webhook.connection_info)
        yield from _condition_errors(path / "matchConditions", webhook, compiler)


def _time_errors(path: Path, sent: _Webhook) -> Iterator[FieldError]:
    if not sent.timeout:
        yield required(path / "timeout")
    elif not 0 < _seconds(sent.timeout) <= LONGEST_TIMEOUT:
        yield invalid(path / "timeout", sent.timeout, "must be > 0s and <= 30s")
    ttls = {"authorizedTTL": sent.authorized_ttl, "unauthorizedTTL": sent.unauthorized_ttl}
    for name, text in ttls.items():
        if text and _seconds(text) < 0:
            yield invalid(path / name, text, "must be > 0s")


def _seconds(text: str) -> float:
    """The seconds of a duration; negative if it is malformed."""
    try:
        return seconds_of(text) if text else 0.0
    except ValueError:
        return -1.0


def _choice_errors(path: Path, sent: _Webhook) -> Iterator[FieldError]:
    conditions_version = sent.match_condition_subject_access_review_version
    choices: dict[str, tuple[str, tuple[str, ...]]] = {
        "subjectAccessReviewVersion": (sent.subject_access_review_version, VERSIONS),
        "failurePolicy": (sent.failure_policy, FAILURE_POLICIES),
    }
    if conditions_version:
        choices["matchConditionSubjectAccessReviewVersion"] = conditions_version, ("v1",)
    elif sent.match_conditions:
        where = path / "matchConditionSubjectAccessReviewVersion"
        yield required(where, "required if match conditions are specified")
    for name, (choice, supported) in choices.items():
        if not choice:
            yield required(path / name)
        elif choice not in supported:
            yield unsupported(path / name, choice, supported)


def _connection_errors(path: Path, sent: _Connection) -> Iterator[FieldError]:
    file, at = sent.kube_config_file, path / "kubeConfigFile"
    if not sent.type:
        yield required(path / "type")
    elif sent.type != KUBECONFIG:
        yield unsupported(path / "type", sent.type, (KUBECONFIG,))
    elif not file:
        yield required(at)
    elif not FilePath(file).is_absolute():
        yield invalid(at, file, "must be an absolute path")
    elif not os.path.lexists(file):
        yield invalid(at, file, "error loading file: no such file")
    elif not FilePath(file).is_file():
        yield invalid(at, file, "must be a regular file")


def _condition_errors(path: Path, sent: _Webhook, compiler: Compiler) -> Iterator[FieldError]:
    if len(sent.match_conditions) > MOST_CONDITIONS:
        yield too_many(path, len(sent.match_conditions), MOST_CONDITIONS)
        return
    seen: set[str] = set()
    for index, condition in enumerate(sent.match_conditions):
        at, source = path[index] / "expression", condition.expression
        if not source.strip():
            yield required(at)
        elif source in seen:
            yield duplicate(at, source)
        else:
            seen.add(source)
            try:
                compiler.request_condition(source)
            except ExpressionUnusable as problem:
                yield invalid(at, source, str(problem))
