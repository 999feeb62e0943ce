"""Secret: small confidential data by key. Its values appear in no log, error or audit record.

Service account tokens and bootstrap tokens are Secrets with a type of their own; they are filled
and checked elsewhere (features/accounts/controllers/fill_token_secrets.py, access/authenticators/).
"""

from collections.abc import Iterator
from typing import Annotated

from msgspec import field

from orchid.kernel.engine.kind import Column, Kind, Scope
from orchid.kernel.engine.request import Request
from orchid.kernel.engine.strategy import Strategy
from orchid.kernel.engine.tables import AGE, NAME
from orchid.kernel.wire.codec.documents import Undecodable, plain
from orchid.kernel.wire.fields import (
    METADATA,
    FieldError,
    Path,
    immutable,
    invalid,
    required,
    too_long,
)
from orchid.kernel.wire.meta import Object
from orchid.kernel.wire.naming import Naming
from orchid.kernel.wire.rules.data import LARGEST_DATA, immutable_data_errors, key_errors
from orchid.kernel.wire.struct import confidential, describe, proto, replace
from orchid.kernel.wire.text import REDACTED

OPAQUE = "Opaque"
DATA = Path() / "data"


class Secret(Object):
    """Small confidential data by key."""

    immutable: Annotated[bool | None, proto(5), describe("If true, the data is immutable.")] = None
    data: Annotated[
        dict[str, bytes], proto(2), confidential(), describe("The data by key, in base64.")
    ] = field(default_factory=dict)
    string_data: Annotated[
        dict[str, str],
        proto(4),
        confidential(),
        describe("Write-only data as plain text; the server moves it to `data`."),
    ] = field(default_factory=dict)
    type: Annotated[
        str, proto(3), describe("The type of the data; some types require certain keys.")
    ] = ""


class Rules(Strategy[Secret]):
    def __init__(self, naming: Naming) -> None:
        self._token_type = naming.token_secret_type
        self._account_annotation = naming.account_name_annotation
        self._needed = {
            naming.own("tls"): ("tls.crt", "tls.key"),
            naming.own("ssh-auth"): ("ssh-privatekey",),
            naming.own("dockercfg"): (".dockercfg",),
            naming.own("dockerconfigjson"): (".dockerconfigjson",),
        }
        self._password_type = naming.own("basic-auth")

    def prepare_for_update(self, new: Secret, old: Secret, request: Request) -> Secret:
        return new if new.type else replace(new, type=old.type)

    def validate(self, new: Secret) -> Iterator[FieldError]:
        yield from key_errors(DATA, new.data)
        if sum(map(len, new.data.values())) > LARGEST_DATA:
            yield too_long(DATA, LARGEST_DATA)
        mark = self._account_annotation
        if new.type == self._token_type and not new.metadata.annotations.get(mark):
            yield required((METADATA / "annotations")[mark])
        if new.type == self._password_type and not new.data.keys() & {"username", "password"}:
            yield required(DATA["username"])
            yield required(DATA["password"])
        for key in self._needed.get(new.type, ()):
            if key not in new.data or (key == "ssh-privatekey" and not new.data[key]):
                yield required(DATA[key])
            elif key.startswith(".docker"):
                yield from object_errors(DATA[key], new.data[key])

    def validate_update(self, new: Secret, old: Secret) -> Iterator[FieldError]:
        yield from immutable(Path() / "type", new.type, old.type)
        if old.immutable:
            yield from immutable_data_errors(bool(new.immutable), {"data": (new.data, old.data)})
        yield from self.validate(new)


def object_errors(path: Path, text: bytes) -> Iterator[FieldError]:
    """Registry credentials must be a JSON object. The error does not repeat the value."""
    try:
        document = plain(text)
    except Undecodable:
        document = None
    if not isinstance(document, dict):
        yield invalid(path, REDACTED, "must be a JSON object")


def with_defaults(new: Secret) -> Secret:
    """Convert stringData and set the default type."""
    if not new.string_data and new.type:
        return new
    data = {**new.data, **{key: text.encode() for key, text in new.string_data.items()}}
    return replace(new, data=data, string_data={}, type=new.type or OPAQUE)


def declare(naming: Naming) -> Kind[Secret]:
    return Kind(
        type=Secret,
        group="",
        version="v1",
        plural="secrets",
        scope=Scope.NAMESPACED,
        rules=Rules(naming),
        defaults=with_defaults,
        columns=(
            NAME,
            Column("Type", lambda secret, now: secret.type, description="The type of the data."),
            Column(
                "Data",
                lambda secret, now: len(secret.data),
                description="The number of keys.",
            ),
            AGE,
        ),
        selectable={"type": lambda secret: secret.type},
    )
