"""ConfigMap: configuration data by key. Here it carries CA bundles to every namespace.

Its data is confidential, because configuration often contains passwords.
"""

from collections.abc import Iterator
from typing import Annotated

from msgspec import field

from orchid.kernel.engine.kind import Column, Kind, Scope
from orchid.kernel.engine.strategy import Strategy
from orchid.kernel.engine.tables import AGE, NAME
from orchid.kernel.wire.fields import FieldError, Path, invalid, too_long
from orchid.kernel.wire.meta import Object
from orchid.kernel.wire.naming import Naming
from orchid.kernel.wire.rules.data import LARGEST_DATA, immutable_data_errors, key_errors
from orchid.kernel.wire.struct import confidential, describe, proto

DATA, BINARY_DATA = Path() / "data", Path() / "binaryData"


class ConfigMap(Object):
    """Configuration data by key."""

    immutable: Annotated[bool | None, proto(4), describe("If true, the data is immutable.")] = None
    data: Annotated[dict[str, str], proto(2), confidential(), describe("Text by key.")] = field(
        default_factory=dict
    )
    binary_data: Annotated[
        dict[str, bytes],
        proto(3),
        confidential(),
        describe("Binary data by key, in base64; its keys differ from those of data."),
    ] = field(default_factory=dict)


class Rules(Strategy[ConfigMap]):
    def validate(self, new: ConfigMap) -> Iterator[FieldError]:
        yield from key_errors(DATA, new.data)
        for key in new.data.keys() & new.binary_data.keys():
            yield invalid(DATA[key], key, "duplicate of key present in binaryData")
        yield from key_errors(BINARY_DATA, new.binary_data)
        size = sum(len(text.encode()) for text in new.data.values())
        if size + sum(map(len, new.binary_data.values())) > LARGEST_DATA:
            yield too_long(Path()[""], LARGEST_DATA)

    def validate_update(self, new: ConfigMap, old: ConfigMap) -> Iterator[FieldError]:
        if old.immutable:
            yield from immutable_data_errors(
                bool(new.immutable),
                {"data": (new.data, old.data), "binaryData": (new.binary_data, old.binary_data)},
            )
        yield from self.validate(new)


def declare(naming: Naming) -> Kind[ConfigMap]:
    return Kind(
        type=ConfigMap,
        group="",
        version="v1",
        plural="configmaps",
        scope=Scope.NAMESPACED,
        rules=Rules(),
        short_names=("cm",),
        columns=(
            NAME,
            Column(
                "Data",
                lambda config, now: len(config.data) + len(config.binary_data),
                description="The number of keys.",
            ),
            AGE,
        ),
    )
