"""Secrets in the store are encrypted; the keys for it, and their rotation.

Uses       objects
Read first encryption.py
"""

from collections.abc import Iterable

from orchid.features.sealing.sealing import Sealing, SealingServers
from orchid.kernel.context import Context, ServerPart
from orchid.kernel.feature import Background, Feature
from orchid.kernel.store.encryption import EncryptedStore


def _sealing(context: Context) -> Sealing:
    settings, store = context.settings, context.port(EncryptedStore)
    return Sealing(
        settings,
        context.kinds,
        store,
        context.feed,
        servers=context.port(SealingServers),
    )


async def _prepare(context: Context) -> None:
    context.port(Sealing).require_keys()


def _background(context: Context, controls: bool) -> Iterable[Background]:
    sealing = context.port(Sealing)
    yield Background(run=sealing.run)
    if controls:
        yield Background(run=sealing.resealing(context.settings).run)


FEATURE = Feature(
    name="sealing",
    provides=(ServerPart(Sealing, _sealing),),
    metrics=lambda context: context.port(Sealing).metrics,
    prepare=_prepare,
    background=_background,
    documentation="how-to/backup.md",
)
