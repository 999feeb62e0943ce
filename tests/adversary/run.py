"""Users with partial rights, thieves and what they do; invariants are checked from outside.

    make adversary MINUTES=10
    python -m tests.adversary.run --store etcd --seed 4711 --minutes 5
    python -m tests.adversary.run --checkout ../before --most 20      servers of another checkout

The seed, which is printed, decides who has which rights and what is drawn. The first violation of
each rule is printed with its history, made as short as possible on fresh servers. Ends with exit
code 1 if anything was violated, or nothing was tried.
"""

import argparse
import random
import sys
from pathlib import Path

from tests.adversary import rights
from tests.adversary.choosing import THEMES
from tests.adversary.invariants.violation import LATEST_SECONDS
from tests.adversary.operations import Operation
from tests.adversary.servers import STORES
from tests.adversary.session import Found, Report, Setting, attacked, replayed
from tests.adversary.shrinking import shrunk

MINUTE = 60.0
TRIES = 25
PATIENCE = LATEST_SECONDS + 1.0
LONGEST_PATIENCE = 60.0
SLOW = ("list", "no next token key")  # rules whose violation shows after some time


def main() -> int:
    options = _arguments()
    print(f"seed {options.seed}", flush=True)
    stores = [options.store] if options.store else list(STORES)
    failed = False
    for store in stores:
        setting = Setting(store, options.seed, options.checkout, tuple(options.themes))
        report = attacked(
            setting,
            seconds=options.minutes * MINUTE / len(stores),
            operations=options.operations,
            most=options.most,
            settle=LATEST_SECONDS + 1.0,
        )
        print(_summary(report), flush=True)
        for found in report.found:
            print(f"VIOLATED {found.violation}", flush=True)
            print(_shown(setting, found, options.tries), flush=True)
        failed = failed or bool(report.found) or not report.operations
    return 1 if failed else 0


def _summary(report: Report) -> str:
    accepted = sum(count for (_, status), count in report.done.items() if 200 <= status < 300)
    servers = [f"{report.done[act, 200]} {act}s" for act in ("restart", "fail-over", "restore")]
    return (
        f"{report.setting.store}, seed {report.setting.seed}: {report.operations} operations "
        f"of {len(rights.USERS) + 1} users and {report.credentials} stolen credentials in "
        f"{report.seconds:.0f} s, {accepted} of them accepted, {', '.join(servers)}; "
        f"{len(report.found)} rules violated"
    )


def _shown(setting: Setting, found: Found, tries: int) -> str:
    """The operations before a violation, as few as the tries allow."""
    rule = found.violation.rule
    patience = LONGEST_PATIENCE if rule.startswith(SLOW) else PATIENCE
    history = shrunk(
        found.history, lambda shorter: replayed(setting, shorter, rule, patience), tries
    )
    lines = [f"  after {len(found.history)} operations, {found.seconds:.0f} s; in short:"]
    lines += [f"  {operation}" for operation in history]
    lines += [f"    {line}" for line in _rights(setting, history)]
    return "\n".join(lines)


def _rights(setting: Setting, history: list[Operation]) -> list[str]:
    drawn = rights.drawn(random.Random(setting.seed))
    return drawn.described({operation.actor for operation in history} - {rights.REGISTRAR})


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--store", choices=STORES, help="one store; else all of them in turn")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    parser.add_argument("--themes", nargs="*", choices=THEMES, default=list(THEMES))
    parser.add_argument("--operations", type=int, default=1 << 30, help="at most so many")
    parser.add_argument("--most", type=int, default=1, help="end after so many violated rules")
    parser.add_argument("--tries", type=int, default=TRIES, help="fresh servers for each history")
    parser.add_argument("--checkout", type=Path, help="attack the servers of another checkout")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
