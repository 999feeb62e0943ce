"""Storage of the editions and the consumers of published bundles, in ConfigMaps.

Each edition of a bundle is one immutable ConfigMap, `edition_name`, in the system namespace. The
status of the PublishedBundle names the current one, and is written after it. The consumers are in
one ConfigMap per bundle, `consumers_name`. All of them carry the label `label` with the uid of
their bundle, and are owned by it, so that they are deleted with it.
"""

import re
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Final

import msgspec

from orchid.features.objects.kinds.config_map import ConfigMap
from orchid.features.trust_bundles.kinds.published_bundle import (
    MOST_SHOWN,
    BundleConsumer,
    BundleConsumers,
    PublishedBundle,
)
from orchid.kernel.wire.meta import ObjectMeta
from orchid.kernel.wire.naming import Naming
from orchid.kernel.wire.references import owner_reference

EDITIONS: Final = "trust."  # the beginning of the names of all editions
is_edition = re.compile(r"trust\..+\.[0-9]{10,}").fullmatch
PEM: Final = "bundle.pem"
CONSUMERS: Final = "consumers.json"
MOST_CONSUMERS: Final = 1000  # names in the list of one bundle
REMEMBERED: Final = timedelta(days=30)


Seconds = Annotated[int, msgspec.Meta(ge=0, le=1 << 40)]


class SeenConsumer(msgspec.Struct, frozen=True):
    """The edition that a client received last, and when, in seconds since 1970."""

    sequence: Seconds
    seen: Seconds


class ConsumerList(msgspec.Struct, frozen=True):
    """The consumers of one bundle: by user name, and for all others fetches by edition."""

    named: dict[str, SeenConsumer] = {}
    others: dict[int, int] = {}

    def merged(self, new: "ConsumerList", now: datetime, editions: set[int]) -> "ConsumerList":
        """This list with what was seen since; names beyond the limit are only counted."""
        oldest = int((now - REMEMBERED).timestamp())
        named = {name: consumer for name, consumer in self.named.items() if consumer.seen >= oldest}
        others = {number: self.others.get(number, 0) for number in editions & self.others.keys()}
        for name, consumer in new.named.items():
            if name in named or len(named) < MOST_CONSUMERS:
                named[name] = consumer
            else:
                others[consumer.sequence] = others.get(consumer.sequence, 0) + 1
        for number, count in new.others.items():
            others[number] = others.get(number, 0) + count
        return ConsumerList(named, others)

    def summary(self, sequence: int, now: datetime) -> BundleConsumers:
        """The fields of the status when this edition is the current one."""
        oldest = int((now - REMEMBERED).timestamp())
        named = {name: consumer for name, consumer in self.named.items() if consumer.seen >= oldest}
        behind = sorted(
            (consumer.sequence, consumer.seen, name)
            for name, consumer in named.items()
            if consumer.sequence < sequence
        )
        longest = tuple(
            BundleConsumer(name=name, sequence=number, seen=datetime.fromtimestamp(seen, UTC))
            for number, seen, name in behind[:MOST_SHOWN]
        )
        current = len(named) - len(behind)
        others = self.others.get(sequence, 0)
        return BundleConsumers(current=current, behind=len(behind), longest=longest, others=others)


def label(naming: Naming) -> str:
    """The label of every ConfigMap of a bundle; its value is the uid of the bundle."""
    return f"{naming.identity}/published-bundle"


def edition_name(bundle: str, sequence: int) -> str:
    return f"{EDITIONS}{bundle}.{sequence}"


def sequence_of(bundle: str, name: str) -> int:
    """The sequence of the edition that a ConfigMap of this name holds; 0 if it holds none."""
    number = name.removeprefix(f"{EDITIONS}{bundle}.")
    return int(number) if number != name and number.isdecimal() else 0


def consumers_name(bundle: str) -> str:
    return f"trust-consumers.{bundle}"


def owned_map(
    bundle: PublishedBundle, api_version: str, naming: Naming, name: str, **content: Any
) -> ConfigMap:
    """A ConfigMap that belongs to a bundle."""
    meta = ObjectMeta(
        name=name,
        namespace=naming.system_namespace,
        labels={label(naming): bundle.metadata.uid},
        owner_references=(owner_reference(bundle, api_version),),
    )
    return ConfigMap(metadata=meta, **content)


def read_consumers(config_map: ConfigMap | None) -> ConsumerList:
    """The list in a ConfigMap; an empty one if there is none, or if it cannot be read."""
    text = config_map.data.get(CONSUMERS, "") if config_map is not None else ""
    try:
        return msgspec.json.decode(text, type=ConsumerList)
    except msgspec.DecodeError:
        return ConsumerList()


def write_consumers(consumers: ConsumerList) -> str:
    return msgspec.json.encode(consumers).decode()
