"""Index of ClusterTrustBundles by the selections of PublishedBundle sources."""

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from orchid.features.trust_bundles.kinds.published_bundle import BundleSource, selects
from orchid.kernel.credentials.x509.trust.anchor_set import Anchor


class IndexKey(NamedTuple):
    """The common property of a source and the trust bundles that it may select."""

    by: str  # signer, name or labels
    value: str = ""


LABELS: Final = IndexKey("labels")


def source_key(source: BundleSource) -> IndexKey:
    if source.name:
        return IndexKey("name", source.name)
    return IndexKey("signer", source.signer_name) if source.signer_name else LABELS


class KnownBundle(NamedTuple):
    """A ClusterTrustBundle with its certificates, parsed once."""

    name: str
    signer: str
    labels: Mapping[str, str]
    anchors: tuple[Anchor, ...]

    @property
    def keys(self) -> tuple[IndexKey, ...]:
        other = IndexKey("signer", self.signer) if self.signer else LABELS
        return (IndexKey("name", self.name), other)


class TrustBundleIndex:
    """Every ClusterTrustBundle, by the selections of sources."""

    def __init__(self) -> None:
        self._all: dict[str, KnownBundle] = {}
        self._by_key: dict[IndexKey, dict[str, KnownBundle]] = {}

    def put(self, new: KnownBundle) -> None:
        self.drop(new.name)
        self._all[new.name] = new
        for key in new.keys:
            self._by_key.setdefault(key, {})[new.name] = new

    def drop(self, name: str) -> None:
        old = self._all.pop(name, None)
        for key in old.keys if old is not None else ():
            del self._by_key[key][name]
            if not self._by_key[key]:
                del self._by_key[key]

    def clear(self) -> None:
        self._all.clear()
        self._by_key.clear()

    def named(self, name: str) -> KnownBundle | None:
        return self._all.get(name)

    def keys_of(self, name: str) -> tuple[IndexKey, ...]:
        known = self._all.get(name)
        return known.keys if known is not None else ()

    def selected(self, source: BundleSource) -> Iterator[KnownBundle]:
        for known in self._by_key.get(source_key(source), {}).values():
            if selects(source, known.name, known.signer, known.labels):
                yield known
