"""The transparency log of issued credentials and of decisions, which anybody can verify.

Pages      /ledger/
Read first sequencing.py
"""

from collections.abc import Iterable

from orchid.features.ledger.own_log import ledger_pages
from orchid.features.ledger.pages.ledger import PREFIX
from orchid.features.ledger.roles import roles
from orchid.features.ledger.status import FILE, LedgerStatus
from orchid.features.ledger.token_counts import TokenCounts
from orchid.kernel.context import Context, ServerPart
from orchid.kernel.feature import Background, Feature


def _status(context: Context) -> LedgerStatus:
    return LedgerStatus(context.store, context.settings.data_dir / FILE, context.clock.now)


def _background(context: Context, controls: bool) -> Iterable[Background]:
    counts, status = context.port(TokenCounts), context.port(LedgerStatus)
    yield Background(run=counts.run, close=counts.write)
    yield Background(run=lambda: status.run(keeps=controls))


FEATURE = Feature(
    name="ledger",
    roles=roles,
    provides=(
        ServerPart(TokenCounts, lambda context: TokenCounts(context.store, context.clock.now)),
        ServerPart(LedgerStatus, _status),
    ),
    pages=lambda context: {PREFIX: ledger_pages(context.settings, context.store)},
    metrics=lambda context: context.port(LedgerStatus).metrics,
    background=_background,
    data_files=(FILE,),
    documentation="ledger.md",
)
