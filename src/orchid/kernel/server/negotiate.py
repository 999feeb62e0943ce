"""Content negotiation: media type, transform (Table, metadata only), pretty or not.

A client chooses by Accept, by `?pretty` and by its User-Agent (curl gets indented JSON). Results
are cached by header text, since clients repeat them.
"""

import functools
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum

import msgspec

from orchid.kernel.wire.errors import NotAcceptable, UnsupportedMedia
from orchid.kernel.wire.naming import META_GROUPS, PROTOBUF_MEDIA_TYPE
from orchid.kernel.wire.status import StatusDetails

JSON, YAML, PROTOBUF = "application/json", "application/yaml", PROTOBUF_MEDIA_TYPE
SERVED = (JSON, YAML, PROTOBUF)
STREAMED = (f"{JSON};stream=watch", f"{PROTOBUF};stream=watch")
LONGEST_CONTENT_TYPE = 1024
LONGEST_ACCEPT = 1024  # characters that are parsed: forms are cached, and sorting takes time
_TRUE = ("1", "t", "T", "TRUE", "true", "True")
_INDENTED_AGENTS = ("curl", "Wget", "Mozilla/5.0")


# RFC 9110 section 5.6.6; a trailing semicolon is accepted.
_WORD = r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"
_ONE = rf';[ \t]*({_WORD})[ \t]*=[ \t]*({_WORD}|"(?:[^"\\]|\\.)*")[ \t]*'
_PARAMETER = re.compile(_ONE).findall
_PARAMETERS = re.compile(rf"(?:{_ONE})*;?[ \t]*").fullmatch


class Transform(StrEnum):
    NONE = ""
    TABLE = "Table"
    METADATA = "PartialObjectMetadata"
    METADATA_LIST = "PartialObjectMetadataList"


@dataclass(frozen=True, slots=True)
class Form:
    """The format of a response."""

    media: str = JSON
    transform: Transform = Transform.NONE
    meta_version: str = ""  # the requested apiVersion of the transform
    pretty: bool = False
    raw: bool = False  # nothing acceptable: indented JSON
    # Whether it is the stored format of objects, so that next to nothing is left to do.
    is_stored_format: bool = field(init=False, compare=False)

    def __post_init__(self) -> None:
        is_stored = self.media == JSON and self.transform is Transform.NONE
        object.__setattr__(self, "is_stored_format", is_stored)  # as frozen dataclasses do


PLAIN = Form()
RAW = Form(pretty=True, raw=True)


class Clause(msgspec.Struct, frozen=True):
    type: str
    subtype: str
    q: float
    parameters: tuple[tuple[str, str], ...]

    def get(self, name: str) -> str:
        return next((value for key, value in self.parameters if key == name), "")


@functools.lru_cache(maxsize=512)
def clauses(accept: str) -> tuple[Clause, ...]:
    """The clauses of an Accept header, best first."""
    ordered: list[Clause] = []
    for text in accept.split(","):
        clause = _clause(text)
        if clause is None:
            continue
        ordered.append(clause)
        index = len(ordered) - 1
        while index > 0 and _before(ordered[index], ordered[index - 1]):
            ordered[index - 1], ordered[index] = ordered[index], ordered[index - 1]
            index -= 1
    return tuple(ordered)


def _clause(text: str) -> Clause | None:
    media, *parameters = (part.strip() for part in text.split(";"))
    type_, slash, subtype = media.partition("/")
    if not slash:
        if media != "*":
            return None
        type_ = subtype = "*"
    pairs, q = [], 1.0
    for parameter in parameters:
        key, _, value = parameter.partition("=")
        if key.strip() == "q":
            try:
                q = float(value)
            except ValueError:
                q = 1.0
        else:
            pairs.append((key.strip(), value.strip()))
    return Clause(type_.strip(), subtype.strip(), q, tuple(pairs))


def _before(clause: Clause, other: Clause) -> bool:
    """The order of Kubernetes: a higher q, or a specific clause after a wildcard, moves forward."""
    if clause.q > other.q:
        return True
    if clause.type != "*" and other.type == "*":
        return True
    return clause.subtype != "*" and other.subtype == "*"


@functools.lru_cache(maxsize=1024)
def form_of(
    accept: str,
    *,
    table: bool,
    transforms: bool,
    served: tuple[str, ...] = SERVED,
) -> Form | None:
    """The form of a response, or None if no clause can be served."""
    if not accept:
        return PLAIN
    for clause in clauses(accept):
        for media in served:
            type_, subtype = media.split("/")
            if clause.type not in (type_, "*") or clause.subtype not in (subtype, "*"):
                continue
            form = _fitted(clause, media, table=table, transforms=transforms)
            if form is not None:
                return form
    return None


def _fitted(clause: Clause, media: str, *, table: bool, transforms: bool) -> Form | None:
    transform, version = Transform.NONE, ""
    parameters = (clause.get("as"), clause.get("g"), clause.get("v"))
    if any(parameters):
        fitting = _transform(parameters, media, table=table) if transforms else None
        if fitting is None:
            return None
        transform, version = fitting
    stream = clause.get("stream")
    if stream and (stream != "watch" or media == YAML):
        return None
    if clause.get("sv") not in ("", "v1"):
        return None
    return Form(media, transform, version, pretty=clause.get("pretty") == "1")


def _transform(
    parameters: tuple[str, str, str], media: str, *, table: bool
) -> tuple[Transform, str] | None:
    kind, group, version = parameters
    if group not in META_GROUPS or version not in ("v1", "v1beta1"):
        return None
    if kind == Transform.TABLE:
        return (Transform.TABLE, f"{group}/{version}") if table and media != PROTOBUF else None
    if kind in (Transform.METADATA, Transform.METADATA_LIST):
        return Transform(kind), f"{group}/{version}"
    return None


def require_route_accepts(accept: str, offered: tuple[str, ...]) -> str:
    """The stricter check of the router: one clause must literally be offered, or be `*/*`.

    Returns the first offered media type that is accepted.
    """
    for media in offered:
        if not accept or _route_accepts(accept, media):
            return media
    raise NotAcceptable(
        f"406: Not Acceptable\n\nAvailable representations: {', '.join(offered)}",
        StatusDetails(),
    )


@functools.lru_cache(maxsize=512)
def _route_accepts(accept: str, offered: str) -> bool:
    plain = offered.partition(";")[0], "*/*"
    return any(clause.partition(";")[0].strip() in plain for clause in accept.split(","))


def media_type_of(content_type: str) -> str:
    """The media type of a body, without its parameters; empty if the header is malformed."""
    if content_type in SERVED:
        return content_type
    if len(content_type) > LONGEST_CONTENT_TYPE:
        return ""
    media, semicolon, rest = content_type.partition(";")
    parameters = semicolon + rest
    if not _PARAMETERS(parameters):
        return ""
    values: dict[str, str] = {}
    for name, value in _PARAMETER(parameters):
        if values.setdefault(name.lower(), value) != value:
            return ""
    return media.strip().lower()


def not_acceptable(served: tuple[str, ...]) -> NotAcceptable:
    return NotAcceptable(f"only the following media types are accepted: {', '.join(served)}")


def unsupported_media(served: Iterable[str] = SERVED) -> UnsupportedMedia:
    return UnsupportedMedia(
        "the body of the request was in an unknown format - accepted media types include: "
        + ", ".join(served)
    )


def wants_pretty(parameter: str | None, user_agent: str) -> bool:
    """`?pretty` decides if given; otherwise clients for people get indented JSON."""
    if parameter:
        return parameter in _TRUE
    return user_agent.startswith(_INDENTED_AGENTS)
