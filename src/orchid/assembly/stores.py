"""The configured store and audit log, opened and closed."""

import contextlib
import logging
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import NamedTuple

from orchid.kernel.base.clock import Clock
from orchid.kernel.credentials.files import read_private
from orchid.kernel.credentials.refusals import Refusal
from orchid.kernel.server.audit import policy as audit_policy
from orchid.kernel.server.audit.log_file import AuditLog, AuditLogUnusable
from orchid.kernel.settings.checking import Settings
from orchid.kernel.settings.errors import BadSettings, NotAvailable
from orchid.kernel.store import format as store_format
from orchid.kernel.store.first_revision import first_revision
from orchid.kernel.store.interface import (
    ABSENT,
    Change,
    Record,
    RevisionConflict,
    Span,
    Store,
    StoreError,
    StoreUnavailable,
)
from orchid.kernel.store.memory import MemoryStore
from orchid.kernel.store.migrate import MOVED, moved_text
from orchid.kernel.store.sqlite.store import SQLiteStore
from orchid.kernel.wire.naming import SEALED_VALUE

log = logging.getLogger(__name__)

RECORDS = Span.prefix("~server/")  # sorts after all objects, so the feed does not load it
NAMING = "~server/naming"
PAGE = 1000  # values that are read at once


@contextlib.asynccontextmanager
async def opened_store(settings: Settings, clock: Clock) -> AsyncIterator[Store]:
    """The configured store, closed at the end."""
    try:
        backend = await _open(settings, clock)
    except StoreError as problem:
        raise _not_opened(problem) from None
    try:
        await _register(backend, settings)
        yield backend
    finally:
        await backend.close()


def _not_opened(problem: StoreError) -> BadSettings:
    refused = NotAvailable if isinstance(problem, StoreUnavailable) else BadSettings
    return refused(f"the store cannot be opened: {problem}")


async def _register(backend: Store, settings: Settings) -> None:
    """Record the naming of the first server, and the version of this one, in one commit.

    A store that was moved elsewhere is refused.
    """
    try:
        while True:
            page = await backend.read(RECORDS)
            records = {record.key: record for record in page.records}
            if MOVED in records:
                raise BadSettings(moved_text(records[MOVED].value))
            changes = _naming(records.get(NAMING), settings.naming.name) + store_format.update(
                records
            )
            if not changes:
                return
            with contextlib.suppress(RevisionConflict):  # another server starts at the same time
                await backend.commit(changes)
    except StoreError as problem:
        raise _not_opened(problem) from None


def _naming(record: Record | None, naming: str) -> list[Change]:
    """The change that stores the naming of a new store; another naming is refused."""
    if record is None:
        return [Change(NAMING, naming.encode(), ABSENT)]
    stored = record.value.decode(errors="replace")
    if stored != naming:
        raise BadSettings(
            f"--naming: this store was begun with {stored}; start with --naming {stored}, or with "
            "another --data-dir or --etcd-prefix"
        )
    return []


async def has_sealed(backend: Store) -> bool:
    """Whether a store has encrypted values."""
    rest = Span.all()
    while True:
        page = await backend.read(rest, limit=PAGE)
        if any(record.value.startswith(SEALED_VALUE) for record in page.records):
            return True
        if not page.more:
            return False
        rest = rest.after(page.records[-1].key)


async def _open(settings: Settings, clock: Clock) -> Store:
    if settings.given.etcd_servers:
        return await _open_etcd(settings)
    first = first_revision(clock.now().timestamp())
    if settings.given.store == "memory":
        return MemoryStore(first=first)
    return await SQLiteStore.open(settings.data_dir / "orchid.db", first=first)


async def _open_etcd(settings: Settings) -> Store:
    # Imported on demand: most servers use SQLite, and protobuf takes a while to load.
    try:
        from orchid.kernel.store.etcd.store import EtcdStore
    except ImportError:
        raise BadSettings(
            "--etcd-servers needs two more packages: pip install 'orchid-identity[etcd]'"
        ) from None

    options = settings.given
    key = _path(options.etcd_keyfile)
    if key is not None:
        try:
            read_private(key)
        except Refusal as refusal:
            raise BadSettings(f"--etcd-keyfile: {refusal}") from None
    _warn_of_plaintext(options.etcd_servers)
    return await EtcdStore.open(
        options.etcd_servers,
        prefix=options.etcd_prefix,
        ca=_path(options.etcd_cafile),
        certificate=_path(options.etcd_certfile),
        key=key,
    )


def _warn_of_plaintext(servers: Iterable[str]) -> None:
    """An address without a scheme means plain text, which may be a mistake: etcd holds secrets."""
    for server in servers:
        if not server.startswith("https://"):
            address = server.rpartition("@")[2].removeprefix("http://")
            log.warning(
                "store.plaintext",
                extra={
                    "etcd": address,
                    "why": "it is not https://: no TLS, no authentication of the server",
                },
            )


def _path(given: str) -> Path | None:
    return Path(given) if given else None


class AuditRecord(NamedTuple):
    """The audit policy and its log."""

    policy: audit_policy.Policy
    log: AuditLog


@contextlib.asynccontextmanager
async def opened_audit(settings: Settings) -> AsyncIterator[AuditRecord | None]:
    """The configured audit log, if any, flushed at the end."""
    path, policy_file = settings.given.audit_log_path, settings.given.audit_policy_file
    if not path:
        yield None
        return
    try:
        policy = audit_policy.load(Path(policy_file))
        record = AuditLog(path)
    except audit_policy.BadPolicy as problem:
        raise BadSettings(f"--audit-policy-file: {problem}") from None
    except AuditLogUnusable as problem:
        raise BadSettings(f"--audit-log-path: {problem}") from None
    try:
        yield AuditRecord(policy, record)
    finally:
        record.close()
