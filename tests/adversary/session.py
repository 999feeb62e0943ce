"""One run: servers, an attack on them, and the judge; from a seed or from a history."""

import random
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from tests.adversary import rights
from tests.adversary.acts import ADMIN, Attack
from tests.adversary.choosing import THEMES, Chooser
from tests.adversary.invariants.violation import Violation
from tests.adversary.judging import Judge
from tests.adversary.observer import Observer
from tests.adversary.operations import Operation
from tests.adversary.servers import ISSUER, Servers

ALL_PAGES = 100


@dataclass(frozen=True)
class Setting:
    """What is attacked, and from which seed."""

    store: str = "file"
    seed: int = 0
    checkout: Path | None = None
    themes: tuple[str, ...] = THEMES


@dataclass
class Found:
    """A violation, and the operations before it."""

    violation: Violation
    history: list[Operation]
    seconds: float


@dataclass
class Report:
    """What was done, and what was found: the first violation of each rule."""

    setting: Setting
    operations: int = 0
    done: Counter[str] = field(default_factory=Counter)
    found: list[Found] = field(default_factory=list)
    history: list[Operation] = field(default_factory=list)
    seconds: float = 0.0
    credentials: int = 0  # that the server issued, and that were copied

    @property
    def rules(self) -> set[str]:
        return {one.violation.rule for one in self.found}


@contextmanager
def session(setting: Setting) -> Iterator[tuple[Attack, Judge]]:
    """Servers of a fresh installation, for as long as the block lasts."""
    with tempfile.TemporaryDirectory(prefix="orchid-adversary-") as name:
        directory = Path(name)
        servers = Servers(directory, setting.store, _flags(directory), setting.checkout)
        observer = Observer(lambda: servers.first_port, ADMIN)
        attack = Attack(servers, observer, rights.drawn(random.Random(setting.seed)))
        try:
            servers.start()
            observer.start()
            attack.prepare()
            yield attack, Judge(attack, random.Random(setting.seed))
        finally:
            observer.stop()
            servers.close()
            attack.close()


def _flags(directory: Path) -> tuple[str, ...]:
    """Short times, static tokens of the users, and a token key in a file that is imported."""
    users = (*rights.USERS, rights.REGISTRAR)
    lines = [f"{user}-token-of-the-adversary,{user},uid-{user}\n" for user in users]
    tokens, key = directory / "tokens.csv", directory / "token.key"
    tokens.write_text("".join([*lines, f'{ADMIN.token},admin,uid-admin,"system:masters"\n']))
    key.touch(mode=0o600)
    key.write_bytes(
        ec.generate_private_key(ec.SECP256R1()).private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return (
        *("--token-auth-file", str(tokens), "--service-account-issuer", ISSUER),
        *("--service-account-signing-key-file", str(key), "--token-keys", "stored"),
        *("--acme-url", ISSUER),
        *("--service-account-jwks-max-age", "0s", "--token-key-publish-time", "1s"),
    )


def attacked(
    setting: Setting, *, seconds: float, operations: int, most: int = 1, settle: float = 0.0
) -> Report:
    """Draw operations until the time or their number is up, or so many rules are violated.

    `settle`: seconds after the last operation in which controllers may still correct something.
    """
    report = Report(setting)
    with session(setting) as (attack, judge):
        began = time.monotonic()  # the start of the servers is no attack
        chooser = Chooser(attack, random.Random(setting.seed + 1), setting.themes)
        _note(report, judge.begin(), began)
        while report.operations < operations and time.monotonic() - began < seconds:
            operation = chooser.next()
            report.history.append(operation)
            answer = attack.perform(operation)
            report.operations += 1
            report.done[f"{operation.act} {operation.kind}".strip(), answer.status] += 1
            _note(report, judge.after(operation, answer), began)
            if len(report.rules) >= most:
                break
        else:
            time.sleep(settle)
            _note(report, [*judge.changes(0.0), *judge.pages(ALL_PAGES)], began)
        report.credentials = len(attack.credentials)
        report.seconds = time.monotonic() - began
    return report


def _note(report: Report, violations: Sequence[Violation], began: float) -> None:
    for violation in violations:
        if violation.rule not in report.rules:
            history = list(report.history)
            report.found.append(Found(violation, history, time.monotonic() - began))


def replayed(setting: Setting, history: Sequence[Operation], rule: str, patience: float) -> bool:
    """Whether the same operations on a fresh server violate the rule again."""
    with session(setting) as (attack, judge):
        judge.begin()
        for operation in history:
            violations = judge.after(operation, attack.perform(operation))
            if any(violation.rule == rule for violation in violations):
                return True
        deadline = time.monotonic() + patience
        while True:
            late = [*judge.changes(0.2), *judge.pages(ALL_PAGES)]
            late += judge.revocations.probe(attack, random.Random(0), ALL_PAGES)
            if any(violation.rule == rule for violation in late):
                return True
            if time.monotonic() > deadline:
                return False
