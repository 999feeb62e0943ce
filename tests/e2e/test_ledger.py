"""The ledger as people use it: checked, proven and exported by commands, and tampering is named."""

import base64
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from orchid.kernel.tlog.checkpoints import Checkpoint
from orchid.kernel.tlog.notes import NoteSigner
from tests.e2e.serving import running_server

PATIENCE = 20.0
ACCEPT = ("ledger", "accept", "--yes", "--data-dir", "data")


def types(home: Path, *words: str, code: int = 0) -> str:
    """Run `orchid` as the administrator; give what it printed, and said beside it."""
    done = subprocess.run(
        [sys.executable, "-m", "orchid", *words],
        cwd=home,
        env={
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            "KUBECONFIG": str(home / "data" / "admin.kubeconfig"),
        },
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "Traceback" not in done.stderr
    assert done.returncode == code, done.stderr or done.stdout
    return done.stdout if code == 0 else done.stderr


def entries(home: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in types(home, "ledger", "entries").splitlines()]


def until(true: Callable[[], Any], what: str) -> Any:
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        if found := true():
            return found
        time.sleep(0.1)
    raise AssertionError(f"{what} did not happen within {PATIENCE:g} seconds")


def decide(home: Path, name: str, decision: str = "approve") -> int:
    """Create and decide a request; return the index of its entry."""
    kind = {"approve": "request.approved", "deny": "request.denied"}[decision]
    before = len([entry for entry in entries(home) if entry["type"] == kind])
    types(home, "csr", "new", name)
    types(home, "csr", decision, name)

    def logged() -> list[int]:
        found = [n for n, entry in enumerate(entries(home)) if entry["type"] == kind]
        return found[before:]

    [index] = until(logged, f"an entry for {name}")
    return index


def begun(home: Path) -> None:
    """Wait until there is a log: the server's own keys are its first entries."""
    place = ["ledger", "checkpoint"]
    env = {"PATH": os.environ["PATH"], "KUBECONFIG": str(home / "data" / "admin.kubeconfig")}

    def there() -> bool:
        done = subprocess.run(
            [sys.executable, "-m", "orchid", *place], env=env, capture_output=True, check=False
        )
        return done.returncode == 0

    until(there, "a first checkpoint")


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_decision_can_be_proven_to_anybody(tmp_path: Path, workers: str) -> None:
    """The proof of an approval is checked offline, and a changed one is refused."""
    with running_server(tmp_path / "data", "--workers", workers):
        begun(tmp_path)
        index = decide(tmp_path, "alice")
        types(tmp_path, "ledger", "verify")
        types(tmp_path, "ledger", "prove", "--index", str(index), "--to", "alice.tlog-proof")
        types(tmp_path, "ledger", "export", "out")
        refused = types(tmp_path, "ledger", "prove", "00ff", code=1)

    checked = types(tmp_path, "ledger", "check", "alice.tlog-proof", "--key", "out/key")
    proof = tmp_path / "alice.tlog-proof"
    forged = base64.b64encode(b'{"type":"request.denied"}').decode()
    lines = proof.read_text().split("\n")
    proof.write_text("\n".join([lines[0], f"extra {forged}", *lines[2:]]))

    assert json.loads(checked)["type"] == "request.approved"
    assert "no certificate with the serial number ff" in refused
    assert "is not in the log" in types(
        tmp_path, "ledger", "check", "alice.tlog-proof", "--key", "out/key", code=1
    )


def test_tokens_are_counted_across_workers_and_a_stop(tmp_path: Path) -> None:
    """Three tokens, whichever worker issued them, are three in the ledger after a stop."""
    with running_server(tmp_path / "data", "--workers", "2"):
        types(tmp_path, "account", "new", "ci/builder")
        for _ in range(3):
            types(tmp_path, "token", "ci/builder")

    shown = types(tmp_path, "ledger", "tokens", "--data-dir", "data", "-o", "json")
    assert sum(row["tokens"] for row in json.loads(shown)) == 3


def test_one_changed_byte_in_the_database_is_named(tmp_path: Path) -> None:
    """A changed entry in the file of a stopped server is detected, with its index."""
    with running_server(tmp_path / "data"):
        begun(tmp_path)
        index = decide(tmp_path, "mallory", "deny")
    database = tmp_path / "data" / "orchid.db"
    whole = database.read_bytes()
    word = b'"type":"request.denied"'
    places = [n for n in range(len(whole)) if whole.startswith(word, n)]
    types(tmp_path, "ledger", "verify", "--data-dir", "data")

    named = []
    for place in places:  # older copies of the entry may lie in the file beside the one that counts
        changed = bytearray(whole)
        changed[place + len(word) - 3] ^= 1
        database.write_bytes(changed)
        done = subprocess.run(
            [sys.executable, "-m", "orchid", "ledger", "verify", "--data-dir", "data"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        named += [done.stderr] if done.returncode else []

    assert [f"entry {index} does not match its hash" in text for text in named] == [True]


def test_a_ledger_that_was_rolled_back_is_named(tmp_path: Path) -> None:
    """An old database in place of the newer one is found out by a checkpoint that was kept."""
    database = tmp_path / "data" / "orchid.db"
    with running_server(tmp_path / "data"):
        begun(tmp_path)
    shutil.copy(database, tmp_path / "old.db")
    with running_server(tmp_path / "data"):
        decide(tmp_path, "alice")
        (tmp_path / "kept").write_text(types(tmp_path, "ledger", "checkpoint"))
        types(tmp_path, "ledger", "verify", "--since", "kept")
        needless = types(tmp_path, *ACCEPT, code=1)
    shutil.copy(tmp_path / "old.db", database)

    said = types(tmp_path, "ledger", "verify", "--data-dir", "data", "--since", "kept", code=1)
    accepted = types(tmp_path, *ACCEPT)

    assert "the log was rolled back" in said
    assert "nothing was rolled back" in needless
    assert "accepted" in accepted


def test_a_verifier_that_is_not_ours_accepts_the_ledger(tmp_path: Path) -> None:
    """aics-tlog reads the export, and finds the entry in it; a changed byte it refuses."""
    program = Path(sys.executable).with_name("aics-tlog")
    with running_server(tmp_path / "data"):
        begun(tmp_path)
        old = types(tmp_path, "ledger", "checkpoint")
        index = decide(tmp_path, "alice")
        types(tmp_path, "ledger", "export", "out")
    (tmp_path / "old").write_text(old)
    (tmp_path / "key").write_bytes((tmp_path / "out" / "key").read_bytes())

    def verifies(what: str, *words: str) -> int:
        trusted = ["--vkey-file", "key", "--tiles", "out"]
        done = subprocess.run(
            [program, what, *trusted, *words], cwd=tmp_path, capture_output=True, check=False
        )
        return done.returncode

    entry = json.dumps(
        json.loads(
            types(tmp_path, "ledger", "entries", "--from", "out", "--key", "key").splitlines()[
                index
            ]
        ),
        separators=(",", ":"),
        sort_keys=True,
    )
    (tmp_path / "entry").write_text(entry)
    assert verifies("verify-checkpoint") == 0
    assert verifies("verify-inclusion", "--leaf", "entry", "--index", str(index)) == 0
    assert verifies("verify-consistency", "--old-checkpoint", "old") == 0

    (tmp_path / "entry").write_text(entry.replace("approved", "approvee"))
    assert verifies("verify-inclusion", "--leaf", "entry", "--index", str(index)) != 0

    (tmp_path / "entry").write_text(entry)
    [tile] = (tmp_path / "out" / "tile" / "0").rglob("*.p/*")
    tile.write_bytes(bytes([tile.read_bytes()[0] ^ 1]) + tile.read_bytes()[1:])
    assert verifies("verify-inclusion", "--leaf", "entry", "--index", str(index)) != 0


def test_the_key_of_the_ledger_is_replaced_and_either_key_verifies_it(tmp_path: Path) -> None:
    """Ours and aics-tlog accept the log by the old key and by the new one, which it announces."""
    with running_server(tmp_path / "data"):
        begun(tmp_path)
        types(tmp_path, "ledger", "export", "before")
    (tmp_path / "kept").write_bytes((tmp_path / "before" / "checkpoint").read_bytes())
    make = ["openssl", "genpkey", "-algorithm", "ed25519", "-out", str(tmp_path / "new.key")]
    subprocess.run(make, check=True, capture_output=True, umask=0o077)
    old, new = str(tmp_path / "data" / "ledger.key"), str(tmp_path / "new.key")
    flags = ("--ledger-key-file", old, "--ledger-key-file", new)
    with running_server(tmp_path / "data", *flags):
        made = until(
            lambda: [one for one in entries(tmp_path) if one["type"] == "ledger-key.made"],
            "the announcement of the key",
        )
        types(tmp_path, "ledger", "verify", "--key", "before/key")
        types(tmp_path, "ledger", "verify", "--since", "kept")
        types(tmp_path, "ledger", "export", "out")

    (tmp_path / "out" / "key").rename(tmp_path / "new-key")
    new_key = (tmp_path / "new-key").read_text().strip()
    assert [one["key"] for one in made] == [new_key]
    assert new_key != (tmp_path / "before" / "key").read_text().strip()
    program = Path(sys.executable).with_name("aics-tlog")
    for key in ("before/key", "new-key"):
        types(tmp_path, "ledger", "verify", "--from", "out", "--key", key)
        command = [program, "verify-checkpoint", "--vkey-file", key, "--tiles", "out"]
        assert (
            subprocess.run(command, cwd=tmp_path, capture_output=True, check=False).returncode == 0
        )

    flags = ("--ledger-key-file", new)
    with running_server(tmp_path / "data", *flags):  # as after the 30 days: the new key alone
        decide(tmp_path, "alice")
        signed = types(tmp_path, "ledger", "verify", "--since", "kept", "-o", "json")
        types(tmp_path, "ledger", "verify", "--key", "before/key", "--key", "new-key")
        refused = types(tmp_path, "ledger", "verify", "--key", "before/key", code=1)
        (tmp_path / "kept").write_bytes(_signed_by_a_stranger(tmp_path / "kept"))
        forged = types(tmp_path, "ledger", "verify", "--since", "kept", code=1)
    assert json.loads(signed)["key"] == new_key
    assert "the checkpoint is invalid: the note is not signed by" in refused
    assert "kept: no key of this ledger has signed this checkpoint" in forged


def _signed_by_a_stranger(path: Path) -> bytes:
    """The checkpoint in a file, signed under the name of the ledger by a key that it never had."""
    checkpoint = Checkpoint.claimed(path.read_bytes())
    return checkpoint.signed(NoteSigner(checkpoint.origin, Ed25519PrivateKey.generate()))
