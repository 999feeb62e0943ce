"""ClusterRevocations: revoked credentials of clusters, by what a cluster's API server reports.

An API server reports the user name, and the credential id of tokens (`JTI=…`) and certificates
(`X509SHA256=…`). `find` needs one or two dictionary accesses, however many revocations there are.
The index follows the cache of CredentialRevocation (kernel/access/cache_index.py), as new as the
feed.

It does not report when a credential was issued. A revocation of a user spares certificates that
the inventory has and that were requested later; every other credential of the user is refused.
"""

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from orchid.features.certificates.kinds.issued_certificate import (
    IssuedCertificate,
    cluster_record_name,
)
from orchid.features.clusters.kinds.cluster import is_of
from orchid.features.revocation.kinds.credential_revocation import (
    CredentialRevocation,
    CredentialRevocationSpec,
)
from orchid.kernel.access.cache_index import KeyedIndex, Row, Table
from orchid.kernel.engine.cache.entry import Entry
from orchid.kernel.engine.cache.feed import Feed
from orchid.kernel.wire.meta import ObjectMeta

ANY_USER = ""
STORED_WITHOUT: Final = ""  # in place of the uid of a cluster, by an earlier version
CERTIFICATE, TOKEN = "X509SHA256=", "JTI="
ACCOUNT_USER = "system:serviceaccount:"
BACKDATED: Final = timedelta(hours=1)  # signers let a certificate begin before they sign it

Named = tuple[str, str, str]  # name and uid of the cluster; a credential id, or a user name


class ClusterRevocations:
    """Every revocation of a credential of a cluster."""

    def __init__(self, feed: Feed) -> None:
        self._cache = cache = feed.of(CredentialRevocation)
        self._decode = cache.kind.decoder.stored
        self._prefix = cache.kind.key_prefix
        self._records = feed.of(IssuedCertificate)
        self._credentials: Table[Named, str] = {}  # the user whose it is, or ANY_USER
        self._users: Table[Named, datetime | None] = {}  # issued until then; None: all
        self._index = KeyedIndex(cache, self._rows)

    def find(self, cluster: ObjectMeta, username: str, credential_ids: Sequence[str]) -> str | None:
        """The name of a revocation of the credential; None if there is none."""
        self._index.catch_up()
        for uid in (cluster.uid, STORED_WITHOUT):
            for key in self._matching(uid, cluster, username, credential_ids):
                if uid or self._is_of(key, cluster):
                    return key.removeprefix(self._prefix)
        return None

    def _matching(
        self, uid: str, cluster: ObjectMeta, username: str, credential_ids: Sequence[str]
    ) -> Iterator[str]:
        """The keys of the revocations of a credential."""
        for credential in credential_ids:
            for key, user in self._credentials.get((cluster.name, uid, credential), {}).items():
                if user in (ANY_USER, username):
                    yield key
        for key, until in self._users.get((cluster.name, uid, username), {}).items():
            if until is None or not self._is_newer(cluster, credential_ids, until):
                yield key

    def _is_of(self, key: str, cluster: ObjectMeta) -> bool:
        entry = self._cache.entries.get(key)
        return entry is not None and is_of(entry.object, cluster)

    def names(self, spec: CredentialRevocationSpec) -> list[str]:
        """The existing revocations of the same credential, by their keys."""
        self._index.catch_up()
        cluster, entries = (spec.cluster, spec.cluster_uid), dict[str, Any]()
        for credential_id in _credential_ids(spec):
            entries |= self._credentials.get((*cluster, credential_id), {})
        if username := spec.username:
            entries |= self._users.get((*cluster, username), {})
        return list(entries)

    def _is_newer(
        self, cluster: ObjectMeta, credential_ids: Sequence[str], until: datetime
    ) -> bool:
        """Whether it is a recorded certificate that was requested and issued after a moment."""
        return bool(credential_ids) and all(
            self._was_issued_after(until, cluster, credential) for credential in credential_ids
        )

    def _was_issued_after(self, moment: datetime, cluster: ObjectMeta, credential_id: str) -> bool:
        if not credential_id.startswith(CERTIFICATE):
            return False
        name = cluster_record_name(cluster.name, credential_id.removeprefix(CERTIFICATE))
        record = self._records.get("", name)
        if record is None or not is_of(record.object, cluster):
            return False
        requested, begins = record.object.spec.request.created, record.object.spec.not_before
        # A later request can be given an old certificate, by those who may sign it.
        return bool(requested and begins and requested > moment and begins - moment > -BACKDATED)

    def _rows(self, _: str, entry: Entry[CredentialRevocation]) -> Iterator[Row]:
        if b'"cluster":' not in entry.tail:
            return  # most are of our own credentials: they are not decoded here
        spec = self._decode(entry.data).spec
        if not spec.cluster:
            return
        cluster = spec.cluster, spec.cluster_uid
        owner = account_user(spec.token.namespace, spec.token.name) if spec.token else ANY_USER
        for credential_id in _credential_ids(spec):
            yield self._credentials, (*cluster, credential_id), owner
        if username := spec.username:
            until = spec.user.issued_before if spec.user else None
            yield self._users, (*cluster, username), until


def account_user(namespace: str, name: str) -> str:
    """The user name of an account; ANY_USER if it is not named."""
    return f"{ACCOUNT_USER}{namespace}:{name}" if name else ANY_USER


def _credential_ids(spec: CredentialRevocationSpec) -> list[str]:
    if spec.token:
        return [f"{TOKEN}{spec.token.jti}"]
    named = spec.certificate
    return [f"{CERTIFICATE}{one}" for one in (named.sha256, *named.other_sha256)] if named else []
