"""What the table must contain, from the source: nothing new is without an end by accident."""

from collections.abc import Iterator
from pathlib import Path

import orchid
from orchid.commands.records.stored_data import STORED
from orchid.features.revocation.kinds.credential_revocation import CredentialRevocationSpec
from tests.security.ends import table

SOURCE = Path(orchid.__file__).parent
# Folders in which every module accepts credentials, unless the table says what it does.
AUTHENTICATING = (
    "kernel/access/authenticators", "features/*/authenticators", "features/sign_in/oidc",
    "features/clusters",
)  # fmt: skip
# Fields of a revocation that name no credential.
ABOUT = ("reason", "message", "cluster", "cluster_uid")


def problems() -> Iterator[str]:
    """What the source has and the table has not, and the reverse."""
    modules = {
        str(file.relative_to(SOURCE))
        for folder in AUTHENTICATING
        for file in SOURCE.glob(f"{folder}/*.py")
        if file.name not in ("__init__.py", "feature.py")
    }
    listed = {module for one in table.CREDENTIALS for module in one.modules}
    yield from _differences("module", modules - listed, table.NO_CREDENTIAL)
    yield from (f"module {one} is not there" for one in listed if not (SOURCE / one).exists())
    kinds = {key.rpartition("/")[0].rpartition("/")[2] for key in STORED if key[0] != "~"}
    depended = {kind for one in table.CREDENTIALS for kind in one.kinds}
    yield from _differences("kind", kinds - depended, table.NO_END)
    yield from (f"kind {one} is not there" for one in depended - kinds)
    fields = set(CredentialRevocationSpec.__struct_fields__) - set(ABOUT)
    targets = {name for end in table.ENDS for name in end.target.split(", ") if name}
    yield from (f"target {one} is no end" for one in fields ^ targets)
    for one in table.CREDENTIALS:
        yield from _contradictions(one)


def _differences(what: str, found: set[str], explained: dict[str, str]) -> Iterator[str]:
    yield from (f"{what} {one} is not in the table" for one in found - explained.keys())
    yield from (f"{what} {one} needs no explanation" for one in explained.keys() - found)


def _contradictions(one: table.Credential) -> Iterator[str]:
    """What a credential has that the lists of paths and ends do not, or that never counts."""
    unknown = {*one.paths} - {*table.PATHS} | {*one.ends} - {*table.ENDS}
    yield from (f"{one.name}: {each.name} is in no list" for each in unknown)
    for end, path in one.spared:
        if one.ends.get(end) != table.ENDED or path not in one.paths:
            yield f"{one.name}: {end.name} on {path.name} needs no exception"
    if table.ENDED not in one.ends.values():
        yield f"{one.name}: nothing ends it"
