"""Settings for external issuers: the AuthenticationConfiguration file, or the --oidc-* flags.

`read_configuration` and `from_flags` both return validated `IssuerSettings`; all errors are
reported together, by path, in one InvalidConfiguration. claim_configuration.py parses the part
about claims; a rule that cannot run stops the start, since it would protect nobody.
"""

import re
from collections.abc import Collection, Iterable, Iterator
from typing import Any, TypeVar
from urllib.parse import urlsplit

import msgspec
import yaml

from orchid.features.sign_in.oidc.claim_configuration import (
    ClaimMapping,
    ClaimOrExpression,
    ClaimSettings,
    Rule,
    Sent,
    SentMappings,
    SentRule,
    SentUserRule,
)
from orchid.kernel.expressions.cel import Expression, LibraryMissing
from orchid.kernel.outbound.remote import InvalidRemote, trusting
from orchid.kernel.wire.fields import FieldError, Path, duplicate, invalid, required, too_many
from orchid.kernel.wire.naming import Naming
from orchid.kernel.wire.text import field_problem

T = TypeVar("T")

MAX_ISSUERS = 64
MATCH_ANY = "MatchAny"
LONGEST_PATH = 255  # a certificate is longer
ALGORITHMS = ("RS256", "RS384", "RS512", "ES256", "ES384", "ES512", "PS256", "PS384", "PS512")

_CLAIM_VALUE = re.compile(r"[^=]+=.*")


class InvalidConfiguration(ValueError):
    """The settings are invalid. The message lists all errors, each with its path."""


class IssuerSettings(msgspec.Struct, frozen=True):
    """An external issuer: its audiences, and the mapping of its claims to a user."""

    url: str
    audiences: tuple[str, ...]
    username: ClaimOrExpression
    groups: ClaimOrExpression | None = None
    uid: ClaimOrExpression | None = None
    extra: tuple[tuple[str, Expression], ...] = ()
    required_claims: tuple[tuple[str, str], ...] = ()
    claim_rules: tuple[Rule, ...] = ()
    user_rules: tuple[Rule, ...] = ()
    discovery_url: str = ""
    authorities: str = ""  # PEM; empty: those of the system
    algorithms: tuple[str, ...] = ALGORITHMS

    @property
    def configuration_url(self) -> str:
        """The URL of its configuration (OpenID Connect Discovery 1.0, section 4)."""
        return self.discovery_url or f"{self.url.rstrip('/')}/.well-known/openid-configuration"


class Configuration(msgspec.Struct, frozen=True):
    """The content of the file. `anonymous_paths` is None if it does not configure anonymous
    requests.
    """

    issuers: tuple[IssuerSettings, ...]
    anonymous_paths: tuple[str, ...] | None = None


# The file as written; once validated it becomes IssuerSettings.


class _Issuer(Sent, frozen=True):
    url: str = ""
    discovery_url: str = msgspec.field(default="", name="discoveryURL")
    certificate_authority: str = ""
    audiences: tuple[str, ...] = ()
    audience_match_policy: str = ""
    egress_selector_type: str = ""


class _Jwt(Sent, frozen=True):
    issuer: _Issuer = _Issuer()
    claim_validation_rules: tuple[SentRule, ...] = ()
    claim_mappings: SentMappings = SentMappings()
    user_validation_rules: tuple[SentUserRule, ...] = ()


class _Condition(Sent, frozen=True):
    path: str = ""


class _Anonymous(Sent, frozen=True):
    enabled: bool = False
    conditions: tuple[_Condition, ...] = ()


class _File(Sent, frozen=True):
    kind: str = ""
    api_version: str = ""
    jwt: tuple[_Jwt, ...] = ()
    anonymous: _Anonymous | None = None


def read_configuration(
    text: str | bytes, naming: Naming, own_issuers: Collection[str] = ()
) -> Configuration:
    """Parse and validate an AuthenticationConfiguration (YAML or JSON)."""
    sent = decoded(text, _File)
    api_version = f"{naming.server_config}/v1"
    if sent.kind != "AuthenticationConfiguration" or sent.api_version != api_version:
        raise InvalidConfiguration(
            f"expected kind AuthenticationConfiguration of apiVersion {api_version}, "
            f"found {sent.kind!r} of {sent.api_version!r}"
        )
    claims = ClaimSettings(naming)
    try:
        errors = [*_errors(sent.jwt, own_issuers, claims), *_anonymous_errors(sent.anonymous)]
    except LibraryMissing as problem:
        raise InvalidConfiguration(str(problem)) from None
    if errors:
        raise InvalidConfiguration("; ".join(str(error) for error in errors))
    paths = None
    if sent.anonymous is not None:
        paths = tuple(entry.path for entry in sent.anonymous.conditions if sent.anonymous.enabled)
    return Configuration(tuple(_checked(entry, claims) for entry in sent.jwt), paths)


def from_flags(
    *,
    issuer_url: str,
    client_id: str,
    username_claim: str = "sub",
    username_prefix: str = "",
    groups_claim: str = "",
    groups_prefix: str = "",
    required_claims: Iterable[str] = (),
    signing_algorithms: tuple[str, ...] = ("RS256",),
    authorities: str = "",
    own_issuers: Collection[str] = (),
) -> IssuerSettings:
    """The settings of the only issuer that flags can describe."""
    if not issuer_url or not client_id:
        raise InvalidConfiguration(
            "oidc-issuer-url and oidc-client-id must be specified together "
            "when any oidc-* flags are set"
        )
    errors = [*url_errors(Path("oidc-issuer-url"), issuer_url, own_issuers)]
    unknown = [name for name in signing_algorithms if name not in ALGORITHMS]
    if unknown or not signing_algorithms:
        errors.append(invalid(Path("oidc-signing-algs"), list(signing_algorithms), "not supported"))
    pairs = []
    for text in required_claims:
        if not _CLAIM_VALUE.fullmatch(text):
            errors.append(invalid(Path("oidc-required-claim"), text, "must be claim=value"))
        claim, _, value = text.partition("=")
        pairs.append((claim, value))
    if errors:
        raise InvalidConfiguration("; ".join(str(error) for error in errors))
    if not username_prefix and username_claim != "email":
        username_prefix = f"{issuer_url}#"  # so that no external name equals a name of ours
    elif username_prefix == "-":
        username_prefix = ""
    return IssuerSettings(
        url=issuer_url,
        audiences=(client_id,),
        username=ClaimMapping(username_claim, username_prefix),
        groups=ClaimMapping(groups_claim, groups_prefix) if groups_claim else None,
        required_claims=tuple(pairs),
        authorities=authorities,
        algorithms=signing_algorithms,
    )


def decoded(text: str | bytes, type_: type[T]) -> T:
    """A configuration in YAML or JSON; raises InvalidConfiguration with the field or the line."""
    try:
        value = yaml.safe_load(text)
        if value is None:
            raise InvalidConfiguration("the file is empty")
        return msgspec.convert(_without_nulls(value), type_)
    except msgspec.ValidationError as error:
        problem = field_problem(str(error))
        raise InvalidConfiguration(f"strict decoding error: {problem}") from None
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise InvalidConfiguration(f"line {line} is not YAML: {error.problem}") from None
    except (yaml.YAMLError, RecursionError, UnicodeDecodeError):
        raise InvalidConfiguration("the file is not readable YAML") from None


def _without_nulls(value: Any) -> Any:
    """A null means the same as a missing field."""
    if isinstance(value, dict):
        return {key: _without_nulls(one) for key, one in value.items() if one is not None}
    return [_without_nulls(one) for one in value] if isinstance(value, list) else value


def _checked(sent: _Jwt, claims: ClaimSettings) -> IssuerSettings:
    mappings, rules = sent.claim_mappings, sent.claim_validation_rules
    username = claims.mapping(mappings.username)
    assert username is not None  # or there would have been errors
    return IssuerSettings(
        url=sent.issuer.url,
        audiences=sent.issuer.audiences,
        username=username,
        groups=claims.mapping(mappings.groups),
        uid=claims.mapping(mappings.uid),
        extra=claims.extra_mappings(mappings.extra),
        required_claims=tuple((rule.claim, rule.required_value) for rule in rules if rule.claim),
        claim_rules=claims.claim_rules(rules),
        user_rules=claims.user_rules(sent.user_validation_rules),
        discovery_url=sent.issuer.discovery_url,
        authorities=sent.issuer.certificate_authority,
    )


def _errors(
    sent: tuple[_Jwt, ...], own_issuers: Collection[str], claims: ClaimSettings
) -> Iterator[FieldError]:
    root = Path("jwt")
    if len(sent) > MAX_ISSUERS:
        yield too_many(root, len(sent), MAX_ISSUERS)
    urls: set[str] = set()
    discovery: set[str] = set()
    for index, jwt in enumerate(sent):
        path = root[index]
        yield from _issuer_errors(path / "issuer", jwt.issuer, own_issuers)
        if jwt.issuer.url in urls:
            yield duplicate(path / "issuer" / "url", jwt.issuer.url)
        if jwt.issuer.discovery_url and jwt.issuer.discovery_url in discovery:
            yield duplicate(path / "issuer" / "discoveryURL", jwt.issuer.discovery_url)
        urls.add(jwt.issuer.url)
        discovery.add(jwt.issuer.discovery_url)
        yield from claims.errors(
            path, jwt.claim_validation_rules, jwt.claim_mappings, jwt.user_validation_rules
        )


def _issuer_errors(path: Path, sent: _Issuer, own_issuers: Collection[str]) -> Iterator[FieldError]:
    yield from url_errors(path / "url", sent.url, own_issuers)
    if sent.discovery_url:
        yield from url_errors(path / "discoveryURL", sent.discovery_url, ())
        if sent.discovery_url.rstrip("/") == sent.url.rstrip("/"):
            text = "discoveryURL must be different from URL"
            yield invalid(path / "discoveryURL", sent.discovery_url, text)
    if not sent.audiences:
        yield required(path / "audiences", "at least one issuer.audiences is required")
    for index, audience in enumerate(sent.audiences):
        if not audience:
            yield required(path / "audiences" / f"[{index}]", "audience can't be empty")
        elif audience in sent.audiences[:index]:
            yield duplicate((path / "audiences")[index], audience)
    policy = sent.audience_match_policy
    if policy not in ("", MATCH_ANY) or (len(sent.audiences) > 1 and policy != MATCH_ANY):
        text = "must be MatchAny for multiple audiences"
        yield invalid(path / "audienceMatchPolicy", policy, text)
    if sent.certificate_authority:
        yield from authority_errors(path / "certificateAuthority", sent.certificate_authority)
    if sent.egress_selector_type not in ("", "controlplane", "cluster"):
        yield invalid(path / "egressSelectorType", sent.egress_selector_type, "is not known")


def url_errors(path: Path, url: str, disallowed: Collection[str]) -> Iterator[FieldError]:
    if not url:
        yield required(path, "URL is required")
        return
    if url in disallowed:
        text = f"URL must not overlap with disallowed issuers: [{' '.join(sorted(disallowed))}]"
        yield invalid(path, url, text)
    try:
        parts = urlsplit(url)
        fit = bool(parts.hostname) and parts.port != 0
    except ValueError:
        fit = False
    if not fit or not url.isascii() or not url.isprintable() or " " in url:
        yield invalid(path, url, "is not a URL")
        return
    if parts.scheme != "https":
        yield invalid(path, url, "URL scheme must be https")
    if "@" in parts.netloc:
        yield invalid(path, "<hidden>", "URL must not contain a username or password")
    if parts.query or "?" in url:
        yield invalid(path, url, "URL must not contain a query")
    if parts.fragment or "#" in url:
        yield invalid(path, url, "URL must not contain a fragment")


def authority_errors(path: Path, text: str) -> Iterator[FieldError]:
    """Errors of CA certificates in a configuration file, where many write a path."""
    if len(text) <= LONGEST_PATH and text.isprintable():
        yield invalid(path, text, "this is a path; write the certificate itself")
        return
    try:
        trusting(text)
    except InvalidRemote as problem:
        yield invalid(path, "<PEM>", str(problem))


def _anonymous_errors(sent: _Anonymous | None) -> Iterator[FieldError]:
    if sent is not None and sent.conditions and not sent.enabled:
        listed = [{"path": condition.path} for condition in sent.conditions]
        text = "enabled should be set to true when conditions are defined"
        yield invalid(Path("anonymous") / "conditions", listed, text)
    if sent is not None and sent.enabled and not sent.conditions:
        text = "anonymous callers are let in on listed paths only"
        yield required(Path("anonymous") / "conditions", text)
