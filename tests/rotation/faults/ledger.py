"""Ledger keys: the log holds under the key of today, and has every acknowledged entry once.

A server gets the next key, beside the present one, at a start; when all have both and the head is
signed with both, the present one is taken away. So the keys change with the restarts.
"""

import base64
import itertools
import random
import time
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from orchid.features.ledger.reading import StoredLog
from orchid.kernel.credentials.files import write_private
from orchid.kernel.store.interface import Store
from orchid.kernel.tlog.checkpoints import Checkpoint
from orchid.kernel.tlog.notes import NoteVerifier
from tests.faults.decisions import APPROVED, REQUESTS, SIGNER, ledger_violations
from tests.faults.systems import Machine
from tests.rotation.faults.rounds import Report, Subject
from tests.unit.kernel.credentials import samples

OK, CREATED, CONFLICT = 200, 201, 409
CHECKPOINT = "/ledger/checkpoint"


class LedgerKeys(Subject):
    name = "ledger"
    most_writes = 12
    patterns = (r"~ledger/",)
    pause = 0.1

    def __init__(self, report: Report, rng: random.Random) -> None:
        super().__init__(report, rng)
        self._numbers = itertools.count()
        self._acknowledged: set[str] = set()
        self._keys: list[Path] = []
        self._has: dict[str, list[Path]] = {}  # the keys of each machine
        self._signed: Path | None = None  # the newest key that has signed the head
        self._base: dict[str, tuple[str, ...]] = {}

    def prepare(self, machine: Machine) -> None:
        if not self._keys:
            self._new_key()
        self._base[machine.data.name] = machine.flags
        self._give(machine, self._keys[-1:])
        machine.before_start = lambda: self._next(machine)

    def begin(self) -> None:
        self.work(0)

    def work(self, turn: int) -> None:
        """Approve a request: an entry of the ledger."""
        name = f"ledger-{next(self._numbers)}"
        asked = base64.b64encode(samples.request()).decode()
        spec = {"request": asked, "signerName": SIGNER, "usages": ["client auth"]}
        body: dict[str, Any] = {"metadata": {"name": name}, "spec": spec}
        made = self.send(turn, "POST", REQUESTS, body, (CREATED,)).json
        decided = {**body, "status": {"conditions": [APPROVED]}}
        self.send(turn, "PUT", f"{REQUESTS}/{name}/approval", decided, (OK,))
        with self.lock:
            self._acknowledged.add(made["metadata"]["uid"])
        self.count("approvals")

    # -- the rotation ------------------------------------------------------------------------

    def _new_key(self) -> None:
        path = self.system.directory / f"ledger-{len(self._keys)}.key"
        key = Ed25519PrivateKey.generate()
        pkcs8 = serialization.PrivateFormat.PKCS8
        plain = serialization.NoEncryption()
        write_private(path, key.private_bytes(serialization.Encoding.PEM, pkcs8, plain))
        self._keys.append(path)

    def _give(self, machine: Machine, keys: list[Path]) -> None:
        self._has[machine.data.name] = keys
        given = [word for key in keys for word in ("--ledger-key-file", str(key))]
        machine.flags = (*self._base[machine.data.name], *given)

    def _next(self, machine: Machine) -> None:
        """Called before each start: both keys, or the new one alone once all servers have both."""
        everywhere = list(self._has.values())
        if all(len(keys) == 1 for keys in everywhere) and len({k[0] for k in everywhere}) == 1:
            self._new_key()
        if self._keys[-1] not in self._has[machine.data.name]:
            self._give(machine, self._keys[-2:])
        elif len(self._has[machine.data.name]) == 2 and self._is_signed(machine):
            self._give(machine, self._keys[-1:])
            self.count("rotations on a server")

    def _is_signed(self, machine: Machine) -> bool:
        """Whether all servers have the new key, and it has signed the head."""
        if any(self._keys[-1] not in keys for keys in self._has.values()):
            return False
        return self._signed == self._keys[-1]

    def drive(self) -> None:
        newest = self._keys[-1]  # a start may add another one meanwhile
        note = self.send(0, "GET", CHECKPOINT, None, (OK,)).body
        key: Any = serialization.load_pem_private_key(newest.read_bytes(), None)
        verifier = NoteVerifier(Checkpoint.claimed(note).origin, key.public_key())
        if verifier.has_signed(note):
            self._signed = newest

    # -- what must hold ----------------------------------------------------------------------

    def unsettled(self) -> str:
        self.drive()
        newest = self._keys[-1]
        if self._signed != newest and any(newest in one for one in self._has.values()):
            return "the newest key has not signed the head"
        return ""

    def judge(self) -> None:
        for turn in range(len(self.system.machines)):
            self.send(turn, "GET", CHECKPOINT, None, (OK,))
        time.sleep(0)

    async def judge_store(self, store: Store) -> None:
        note = await StoredLog(store).checkpoint() or b""
        origin = Checkpoint.claimed(note).origin
        for path in reversed(self._keys):
            key: Any = serialization.load_pem_private_key(path.read_bytes(), None)
            if NoteVerifier(origin, key.public_key()).has_signed(note):
                place = self.system.directory / "judged"
                place.mkdir()
                (place / "ledger.key").write_bytes(path.read_bytes())
                break
        else:
            self.violate("no key has signed the head")
            return
        for text in await ledger_violations(store, place, {"approval": self._acknowledged}):
            self.violate(text)
