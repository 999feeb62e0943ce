"""Encryption at rest, around the store, and the file with its keys.

Without --encryption-provider-config the embedded store has a file of its own in the data directory,
created at the first start (key_file.py) apart from the database: a copy of
one without the other reveals nothing. Servers over etcd must share their keys: there, nothing is
encrypted unless a file is given. Without one the server warns at start, and refuses to create keys
of authorities (features/authorities/policies/unsealed_keys.py). A file with the provider `identity`
confirms plain text.

`Sealing` follows the file while the server runs. A file that lacks a key with which values are
still sealed is not loaded: the server goes on with the previous one until no value needs that key.
"""

import asyncio
import functools
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from orchid.features.objects.kinds.lease import ServerKeys, opens_annotation, seals_annotation
from orchid.features.objects.kinds.secret import Secret
from orchid.features.sealing.encryption import InvalidEncryption, read_configuration
from orchid.features.sealing.key_file import sealing_key_file
from orchid.features.sealing.settings import is_unsealed
from orchid.kernel.base.metrics import Family, Gauge, Joining, Metric, Sample
from orchid.kernel.credentials.files import fingerprint, read_private
from orchid.kernel.credentials.refusals import Refusal
from orchid.kernel.engine.cache.feed import Feed
from orchid.kernel.engine.kind import Kind
from orchid.kernel.settings.checking import Settings
from orchid.kernel.settings.errors import BadSettings
from orchid.kernel.store.encryption import (
    EncryptedStore,
    IdentityProvider,
    Provider,
    Providers,
    key_name,
)
from orchid.kernel.store.interface import Store
from orchid.kernel.store.resealing import Resealing
from orchid.kernel.wire.naming import SEALED_VALUE, Naming

log = logging.getLogger(__name__)

EVERY_SECONDS: Final = 1.0  # between two checks of the file
UNSEALED: Final = (
    "Secrets are not encrypted in etcd, so that no keys of authorities are made; start every "
    "server with the same --encryption-provider-config (`orchid init` makes one)"
)
VALUES: Final = "orchid_sealed_values"
REFUSED: Final = "orchid_encryption_file_refused"


def encrypted(store: Store, settings: Settings, kinds: Sequence[Kind[Any]]) -> EncryptedStore:
    """The store with encryption around it."""
    if is_unsealed(settings.given):
        log.warning("store.unsealed: %s", UNSEALED)
    try:
        providers = _providers(settings, kinds)
    except (InvalidEncryption, Refusal) as problem:
        raise BadSettings(f"--encryption-provider-config: {problem}") from None
    return EncryptedStore(store, providers, sealed=SEALED_VALUE)


def _providers(settings: Settings, kinds: Sequence[Kind[Any]]) -> dict[str, list[Provider]]:
    """The providers of the configured file; raises InvalidEncryption and Refusal."""
    providers: dict[str, list[Provider]] = {}
    if not is_unsealed(settings.given):
        providers = read_configuration(read_private(sealing_key_file(settings)), kinds)
    for kind in kinds:
        if kind.type is Secret:  # so that encrypted ones are detected where nothing encrypts them
            providers.setdefault(kind.key_prefix, [IdentityProvider(SEALED_VALUE)])
    return providers


class SealingServers(NamedTuple):
    """The sealing keys of live servers."""

    live: Callable[[], Mapping[str, ServerKeys]]  # by the name of the Lease of a server
    own: Callable[[], str]  # the name of our Lease


class Sealing:
    """The sealing keys of one server: its file, the keys of the other servers, and the counts."""

    def __init__(
        self,
        settings: Settings,
        kinds: Sequence[Kind[Any]],
        store: EncryptedStore,
        feed: Feed,
        *,
        servers: SealingServers,
    ) -> None:
        self._naming: Naming = settings.naming
        self._path = sealing_key_file(settings)
        self._load = functools.partial(_providers, settings, kinds)
        self._store = store
        self._feed = feed
        self._servers = servers
        self._resources = {kind.key_prefix: resource_name(kind) for kind in kinds}
        self._follows = not is_unsealed(settings.given)
        self._seen = fingerprint([self._path])
        self._waiting: Providers | None = None  # read from the file, and not in use yet
        self._problem = ""
        self._refused = Gauge(
            REFUSED, "Whether the file of sealing keys was changed and is not used.",
            joins=Joining.MOST,
        )  # fmt: skip
        self._refused.set(0)
        self.changed: Callable[[], None] = lambda: None  # called when other keys are used
        self.metrics: tuple[Metric, ...] = (_SealedValues(store, self._resources), self._refused)
        store.is_shared = self._is_shared

    def annotations(self) -> dict[str, str]:
        """The sealing keys of this process, for its Lease."""
        return {
            opens_annotation(self._naming): ",".join(self._store.key_ids()),
            seals_annotation(self._naming): ",".join(self._store.sealing_ids()),
        }

    def require_keys(self) -> None:
        """Refuse a start with a file that lacks a key of current values."""
        missing = sorted(self._store.missing_keys(self._feed.is_unreadable))
        if self._follows and missing:
            listed = ", ".join(missing)
            raise BadSettings(
                f"--encryption-provider-config: {self._path} lacks a key with which stored values "
                f"are sealed: {listed}. Add it. If it is lost, add another key of that name: the "
                "server then starts, and lists the values that cannot be read"
            )

    def resealing(self, settings: Settings) -> Resealing:
        """Writes values of older keys again; over etcd, on one server at a time."""

        async def alone() -> bool:
            return True

        return Resealing(
            self._store, self._store.may_compact if settings.given.etcd_servers else alone
        )

    async def run(self) -> None:
        """Load the file when it changes, until cancelled."""
        while self._follows:
            await asyncio.sleep(EVERY_SECONDS)
            self.check()

    def check(self) -> None:
        """Read the file if it has changed, and use it as soon as no value needs a missing key."""
        seen = fingerprint([self._path])
        if seen != self._seen:
            self._seen, self._waiting = seen, None
            try:
                self._waiting = self._load()
            except (InvalidEncryption, Refusal) as problem:
                self._report(str(problem))
        if self._waiting is None:
            return
        problems = [*self._needed(self._waiting), *self._sealed_elsewhere(self._waiting)]
        if problems:
            self._report("; ".join(problems))
            return
        self._use(self._waiting)

    def _use(self, providers: Providers) -> None:
        self._waiting = None
        self._report("")
        before = set(self._store.key_ids())
        loads_again = set(providers) != set(self._store.prefixes) or self._store.lacks_key(
            self._feed.is_unreadable
        )
        self._store.use(providers)
        if loads_again:
            self._feed.load_again()  # values under other prefixes, or that can be opened now
        after = self._store.key_ids()
        if set(after) != before:
            log.info("store.sealing_keys", extra={"keys": ",".join(_names(after))})
        self.changed()

    def _needed(self, providers: Providers) -> list[str]:
        """Keys of current values that a file lacks."""
        return [
            f"it lacks {count.key}, with which {count.number} values of "
            f"{self._resources.get(count.prefix, count.prefix)} are sealed"
            for count in self._store.needed_beside(providers)
        ]

    def _sealed_elsewhere(self, providers: Providers) -> list[str]:
        """Keys with which other servers still seal, and that a file lacks."""
        key_ids = {
            f"{prefix}{provider.key_id}" for prefix, some in providers.items() for provider in some
        }
        return [
            f"it lacks {key_name(id_.rpartition('/')[2])}, with which {server} seals"
            for server, keys in self._others()
            for id_ in sorted(keys.seals - key_ids)
            if id_.startswith(tuple(providers))
        ]

    def _report(self, problem: str) -> None:
        if problem and problem != self._problem:
            log.error("store.encryption_file_refused", extra={"file": self._path, "why": problem})
        self._problem = problem
        self._refused.set(float(bool(problem)))

    def _is_shared(self, prefix: str, provider: Provider) -> bool:
        """Whether every other live server can open values of a provider.

        A server whose Lease was not renewed yet may be dead: it takes no key back that seals
        already. Otherwise each start would write all values again, with the key before.
        """
        id_ = f"{prefix}{provider.key_id}"
        lacking = [keys for _, keys in self._others() if id_ not in keys.opens]
        if self._store.has_sealed(prefix, provider):
            return not any(keys.is_renewed for keys in lacking)
        return not lacking

    def _others(self) -> list[tuple[str, ServerKeys]]:
        own = self._servers.own()
        return [(name, keys) for name, keys in self._servers.live().items() if name != own]


class _SealedValues:
    """Gauge of sealed values by key; every server counts all values."""

    def __init__(self, store: EncryptedStore, resources: Mapping[str, str]) -> None:
        self._store = store
        self._resources = resources

    def family(self) -> Family:
        samples = [
            Sample(
                (("resource", self._resources.get(count.prefix, "other")), ("key", count.key)),
                float(count.number),
            )
            for count in self._store.counts()
        ]
        text = "Stored values by the key that sealed them; identity: clear text."
        return Family(VALUES, "gauge", text, samples, Joining.MOST)

    def reset(self) -> None:
        """Gauges are not reset."""


def resource_name(kind: Kind[Any]) -> str:
    """The name of a resource as in an EncryptionConfiguration."""
    return f"{kind.plural}.{kind.group}" if kind.group else kind.plural


def _names(ids: Sequence[str]) -> list[str]:
    return list(dict.fromkeys(key_name(one.rpartition("/")[2]) for one in ids))
