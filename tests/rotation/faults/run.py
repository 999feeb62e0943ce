"""Kill servers after every write of a rotation, and check what clients see: run 4.

    make rotation-faults ROUNDS=200
    python -m tests.rotation.faults.run --store etcd --only tokens --rounds 200 --seed 4711

For each sort of key and each store, so many rounds: `sqlite` is one server on a file, `etcd` three
servers on three members. The seed decides after which writes servers die; the machine decides the
rest. Ends with exit code 1 if anything was violated.
"""

import argparse
import random
import shutil
import signal
import sys
from pathlib import Path

from tests.faults.systems import ServerOnSQLite, ServersOnEtcd
from tests.rotation.faults import importing
from tests.rotation.faults.authority import AuthorityKeys
from tests.rotation.faults.ledger import LedgerKeys
from tests.rotation.faults.rounds import Report, Rounds, Subject, System, keep_logs
from tests.rotation.faults.sealing import SealingKeys
from tests.rotation.faults.tokens import TokenKeys

STORES = ("sqlite", "etcd")
SUBJECTS: dict[str, type[Subject]] = {
    one.name: one for one in (TokenKeys, AuthorityKeys, SealingKeys, LedgerKeys)
}


NAMES = (*SUBJECTS, importing.NAME)


def system_of(store: str, *flags: str) -> System:
    if store == "etcd":
        return ServersOnEtcd(1.0, *flags)
    return ServerOnSQLite(1.0, 1, *flags)


def run(subject: str, store: str, rounds: int, seed: int, logs: Path | None = None) -> Report:
    """One sort of key on one store."""
    if subject == importing.NAME:
        return importing.run(store, rounds, seed)
    kind = SUBJECTS[subject]
    report = Report(subject, store, seed)
    system = system_of(store, *kind.flags)
    try:
        Rounds(system, kind(report, random.Random(seed)), report).run(rounds)
    finally:
        if logs is not None:
            keep_logs(system, logs / f"{subject}-{store}-{seed}")
        system.close()
    return report


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.rotation.faults.run")
    parser.add_argument("--store", choices=STORES, action="append", help="default: both")
    parser.add_argument("--only", choices=NAMES, action="append", help="default: all")
    parser.add_argument("--rounds", type=int, default=200, help="of each (default: 200)")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    parser.add_argument("--logs", type=Path, help="a directory for the logs of the servers")
    given = parser.parse_args(words)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by a signal"))  # no server is left
    stores = given.store or [one for one in STORES if one != "etcd" or shutil.which("etcd")]
    broken = 0
    for subject in given.only or NAMES:
        for store in stores:
            report = run(subject, store, given.rounds, given.seed, given.logs)
            print(report, flush=True)
            broken += len(report.violations)
    print(f"{broken} violations")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
