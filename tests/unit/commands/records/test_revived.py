"""Credentials that a restore makes valid again: which are found, and what is revoked of them."""

from datetime import UTC, datetime
from pathlib import Path

from orchid.commands.records import revived
from orchid.features.revocation.kinds import credential_revocation
from orchid.features.revoking import revocation_file
from orchid.kernel.store.interface import ABSENT, Change
from orchid.kernel.store.sqlite.store import SQLiteStore
from orchid.kernel.wire.naming import ORCH


async def holding(path: Path, accounts: dict[str, str]) -> Path:
    """A data file with some accounts and their uids."""
    store = await SQLiteStore.open(path)
    for name, uid in accounts.items():
        value = b'{"metadata":{"name":"x","uid":"%b"}}' % uid.encode()
        await store.commit([Change(revived.ACCOUNTS + name, value, ABSENT)])
    await store.close()
    return path


async def test_an_account_of_the_same_name_is_not_the_one_of_the_backup(tmp_path: Path) -> None:
    """It was deleted and made again: tokens of the old one become valid with the old uid."""
    backup = await holding(tmp_path / "backup", {"ci/again": "1", "ci/same": "2", "ci/gone": "3"})
    in_place = await holding(tmp_path / "data", {"ci/again": "9", "ci/same": "2"})

    found = revived.compare(backup, in_place)

    assert sorted(found.deleted_accounts) == ["ci/again", "ci/gone"]
    assert sorted(found.accounts) == ["ci/again", "ci/gone", "ci/same"]


def test_tokens_are_revoked_up_to_the_second_of_the_restore(tmp_path: Path) -> None:
    """A token of the same minute may be the stolen one."""
    place, kind = tmp_path / revocation_file.FILE, credential_revocation.declare(ORCH)

    revived.revoke(place, ["ci/robot"], datetime(2026, 1, 2, 3, 4, 59, 700_000, tzinfo=UTC))

    [line] = revocation_file.read(place).values()
    account = kind.decoder.stored(line).spec.account
    assert account is not None
    assert (account.namespace, account.name) == ("ci", "robot")
    assert account.issued_before == datetime(2026, 1, 2, 3, 4, 59, tzinfo=UTC)
