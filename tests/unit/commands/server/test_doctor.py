"""`orchid doctor` on stopped installations: it reports damage, and nothing on a good one."""

import asyncio
import datetime
import json
import os
import pwd
import shutil
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from orchid import cli
from orchid.assembly.kinds import stored_kinds
from orchid.commands.diagnosis import file_checks, other_key_checks
from orchid.commands.diagnosis.all_checks import all_checks
from orchid.commands.diagnosis.file_checks import FILE_CHECKS
from orchid.commands.diagnosis.other_key_checks import OTHER_KEY_CHECKS
from orchid.commands.diagnosis.outside_checks import OUTSIDE_CHECKS
from orchid.commands.diagnosis.server_checks import SERVER_CHECKS
from orchid.commands.server import doctor
from orchid.features.notices import checks
from orchid.features.sealing.encryption import read_configuration
from orchid.kernel.credentials import keys
from orchid.kernel.credentials.authorities.authority import Authority
from orchid.kernel.credentials.files import write_private
from orchid.kernel.store.interface import ABSENT, Change
from orchid.kernel.store.sqlite.store import SQLiteStore
from orchid.kernel.terminal.findings import Installation
from orchid.kernel.wire.naming import ORCH, SEALED_VALUE
from tests.e2e.serving import sealing_flags

DAY = datetime.timedelta(days=1)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """The data directory of a server that was stopped."""
    path = tmp_path / "data"
    cli.main(["init", "--data-dir", str(path)])

    async def used() -> None:
        store = await SQLiteStore.open(path / "orchid.db")
        await store.commit([Change("/registry/x", b"{}" * 4000, ABSENT)])
        await store.close()

    asyncio.run(used())
    return path


Examine = Callable[..., tuple[int, list[dict[str, Any]]]]


@pytest.fixture
def examine(data: Path, capsys: pytest.CaptureFixture[str]) -> Examine:
    """Run the command; give its exit code and everything that is not good."""

    def run(*flags: str) -> tuple[int, list[dict[str, Any]]]:
        capsys.readouterr()
        code = cli.main(["doctor", "-o", "json", "--data-dir", str(data), *flags])
        found = json.loads(capsys.readouterr().out)["findings"]
        return code, [each for each in found if each["state"] in ("wrong", "soon")]

    return run


def test_nothing_is_wrong_with_a_good_installation(examine: Examine) -> None:
    """Not even soon; that no server runs is no fault."""
    assert examine() == (0, [])


def test_findings_are_shown_to_people(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One line each, and a sum."""
    capsys.readouterr()

    code = cli.main(["doctor", "--data-dir", str(data)])

    lines = capsys.readouterr().out.splitlines()
    assert code == 0
    assert lines[0].split() == ["STATE", "CHECK", "FINDING"]
    assert any("only its files were checked" in line for line in lines)
    assert lines[-1] == "0 wrong, 0 soon, 15 good"


def expose_key(data: Path) -> None:
    (data / "ca.key").chmod(0o644)


def lose_key(data: Path) -> None:
    (data / "ledger.key").unlink()


def swap_key(data: Path) -> None:
    write_private(data / "serving.key", keys.generate().pem().reveal().encode())


def open_directory(data: Path) -> None:
    data.chmod(0o755)


def damage_store(data: Path) -> None:
    size = (data / "orchid.db").stat().st_size
    with (data / "orchid.db").open("r+b") as file:
        file.seek(8192)
        file.write(b"\xa5" * (size - 8192))


def replace_store(data: Path) -> None:
    (data / "orchid.db").write_bytes(b"this is no database")


def write_in_the_future(data: Path) -> None:
    later = datetime.datetime.now(datetime.UTC) + DAY
    os.utime(data / "orchid.db", (later.timestamp(), later.timestamp()))


def cut_certificate(data: Path) -> None:
    (data / "ca.crt").write_bytes((data / "ca.crt").read_bytes()[:200])


@pytest.mark.parametrize(
    ("damage", "check", "words"),
    [
        (expose_key, "keys", "chmod 0600"),
        (lose_key, "keys", "ledger.key: No such file"),
        (lose_key, "keys", "put it back from a copy"),
        (swap_key, "pairs", "serving.key"),
        (open_directory, "directory", "chmod 0700"),
        (damage_store, "store", "malformed"),
        (replace_store, "store", "cannot be read as an Orchid data file"),
        (write_in_the_future, "clock", "set the clock"),
        (cut_certificate, "expiry", "cluster-ca certificate cannot be read"),
        (cut_certificate, "pairs", "from a backup"),
    ],
)
def test_damage_is_reported(
    data: Path, examine: Examine, damage: Callable[[Path], None], check: str, words: str
) -> None:
    """The check that is meant for it says so, in words that lead on; the exit code is 1."""
    damage(data)

    code, found = examine()

    reported = [f"{each['text']}; {each['advice']}" for each in found if each["check"] == check]
    assert code == 1
    assert any(words in text for text in reported), found


def test_a_serving_certificate_that_is_lost_is_made_again(data: Path, examine: Examine) -> None:
    """By the next start, which the advice says; one finding, and no fault."""
    (data / "serving.crt").unlink()

    code, found = examine()

    assert (code, [each["check"] for each in found]) == (0, ["pairs"])
    assert found[0]["advice"] == "the next start creates a new one"


def test_a_lost_certificate_of_the_operator_is_a_fault(data: Path, examine: Examine) -> None:
    """The server never makes that."""
    pair = ("--tls-cert-file", str(data / "own.crt"), "--tls-private-key-file")

    code, found = examine(*pair, str(data / "serving.key"))

    assert code == 1
    assert "own.crt" in str(found)


def test_one_cause_is_reported_once(data: Path, examine: Examine) -> None:
    """A key that others can read is a matter of its mode, and of nothing else."""
    (data / "ca.key").chmod(0o644)

    _, found = examine()

    assert [each["check"] for each in found if each["state"] == "wrong"] == ["keys"]


@pytest.mark.parametrize(
    ("days", "code", "reported"),
    [(-1, 1, [("wrong", "ended")]), (10, 0, [("soon", "ends")]), (90, 0, [])],
)
def test_expiry_is_reported_before_and_after(
    tmp_path: Path, examine: Examine, days: int, code: int, reported: list[tuple[str, str]]
) -> None:
    """An expired certificate is a fault; one that expires within 30 days is a warning."""
    begun = datetime.datetime.now(datetime.UTC) - 100 * DAY
    authority = Authority.create("ca", now=begun, lifetime=(100 + days) * DAY)
    write_private(tmp_path / "client-ca.crt", authority.certificate_pem)

    answer, found = examine("--client-ca-file", str(tmp_path / "client-ca.crt"))

    words = [(each["state"], each["text"].split()[3]) for each in found]
    assert (answer, words) == (code, reported)
    assert all(each["text"].startswith("the client-ca certificate") for each in found)


def test_a_signing_key_that_verifies_nothing_is_reported(tmp_path: Path, examine: Examine) -> None:
    """A rotation in the wrong order refuses every new token."""
    write_private(tmp_path / "other.key", keys.generate().pem().reveal().encode())

    code, found = examine("--service-account-key-file", str(tmp_path / "other.key"))

    assert code == 1
    assert [each["check"] for each in found] == ["token keys"]
    assert "every new token is refused" in found[0]["text"]


@pytest.mark.parametrize(
    ("free", "code", "states"), [(1 << 20, 1, ["wrong"]), (1 << 28, 0, ["soon"])]
)
def test_little_disk_space_is_reported(
    examine: Examine, monkeypatch: pytest.MonkeyPatch, free: int, code: int, states: list[str]
) -> None:
    """Before the disk is full, and when it is."""
    usage = shutil._ntuple_diskusage(1 << 40, (1 << 40) - free, free)
    monkeypatch.setattr(file_checks.shutil, "disk_usage", lambda place: usage)

    answer, found = examine()

    assert answer == code
    assert [(each["check"], each["state"]) for each in found] == [("disk", each) for each in states]


@pytest.mark.parametrize(
    ("dead", "code", "states"), [(0, 0, []), (1, 0, ["soon"]), (2, 1, ["wrong"])]
)
def test_etcd_without_a_majority_is_reported(
    examine: Examine, tmp_path: Path, dead: int, code: int, states: list[str]
) -> None:
    """One member of three may be missing for a while; without two nothing can be written."""
    with socket.create_server(("127.0.0.1", 0)) as alive:
        port = alive.getsockname()[1]
        endpoints = ["http://127.0.0.1:1"] * dead + [f"http://127.0.0.1:{port}"] * (3 - dead)

        flags = ("--etcd-servers", ",".join(endpoints), *sealing_flags(tmp_path))
        answer, found = examine(*flags)

    assert answer == code
    assert [(each["check"], each["state"]) for each in found] == [
        ("store", each) for each in states
    ]


@pytest.mark.parametrize(
    ("endpoint", "is_wrong"),
    [
        ("http://etcd.invalid:2379", True),
        ("ann:secret@etcd.invalid:2379", True),
        ("https://etcd.invalid:2379", False),
        ("http://127.0.0.1:1", False),
        ("http://localhost:1", False),
        ("[::1]:1", False),
    ],
)
def test_etcd_elsewhere_without_tls_is_reported(
    examine: Examine,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    endpoint: str,
    is_wrong: bool,
) -> None:
    """By its address, without a password."""
    monkeypatch.setattr(file_checks, "_listens", lambda _endpoint: True)

    _, found = examine("--etcd-servers", endpoint, *sealing_flags(tmp_path))

    reported = [each["text"] for each in found if "without TLS" in each["text"]]
    assert bool(reported) == is_wrong
    assert "secret" not in str(reported)
    assert all("etcd at etcd.invalid:2379 " in text for text in reported)


def test_etcd_without_encryption_is_reported(examine: Examine) -> None:
    """A copy of etcd would hold every Secret, and the keys of authorities."""
    with socket.create_server(("127.0.0.1", 0)) as alive:
        code, found = examine("--etcd-servers", f"http://127.0.0.1:{alive.getsockname()[1]}")

    assert code == 1
    assert [each["check"] for each in found] == ["encryption"]
    assert "--encryption-provider-config" in found[0]["advice"]


def test_a_lost_encryption_key_is_reported(data: Path, examine: Examine) -> None:
    """The next start would make another, and Secrets could not be read."""
    (data / "encryption.yaml").unlink()

    code, found = examine()

    assert code == 1
    assert [each["check"] for each in found] == ["encryption"]


def test_another_sealing_key_is_reported(data: Path, examine: Examine) -> None:
    """The file is there, and its key is not the one that has sealed the Secrets."""

    async def fill(**values: bytes) -> None:
        store = await SQLiteStore.open(data / "orchid.db")
        for name, value in values.items():
            await store.commit([Change(f"core/secrets/ci/{name}", value, ABSENT)])
        await store.close()

    kinds = stored_kinds(ORCH)
    own, _ = read_configuration((data / "encryption.yaml").read_bytes(), kinds)["core/secrets/"]
    asyncio.run(fill(clear=b"{}", sealed=own.seal(b"{}", "core/secrets/ci/sealed")))
    before = examine()
    asyncio.run(fill(lost=SEALED_VALUE + b"aesgcm:v1:key1:" + bytes(40)))
    code, found = examine()

    assert before == (0, [])
    assert code == 1
    assert [each["check"] for each in found] == ["encryption"]
    assert "1 values" in found[0]["text"]
    assert str(data / "encryption.yaml") in found[0]["text"]


def test_a_bad_audit_policy_is_reported(tmp_path: Path, examine: Examine) -> None:
    """Rules that cannot be read stop the next start."""
    (tmp_path / "policy.yaml").write_text("kind: Nonsense\n")
    flags = ("--audit-log-path", str(tmp_path / "audit.log"))

    code, found = examine(*flags, "--audit-policy-file", str(tmp_path / "policy.yaml"))

    assert code == 1
    assert [each["check"] for each in found] == ["settings"]


def test_check_that_breaks_is_a_finding(
    data: Path, examine: Examine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others go on."""

    def broken(_: object) -> Any:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setitem(FILE_CHECKS, "store", broken)

    code, found = examine()

    assert code == 1
    assert [each["check"] for each in found] == ["store"]


def test_directory_that_is_not_there_is_a_clear_message(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 2: it was typed wrongly."""
    assert cli.main(["doctor", "--data-dir", str(tmp_path / "none")]) == 2
    assert "say where it is with --data-dir" in capsys.readouterr().err


def test_directory_of_somebody_else_is_not_judged(
    data: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Root sees other things than the server does; the command says as whom to look."""
    monkeypatch.setattr(doctor.os, "geteuid", lambda: data.stat().st_uid + 1)

    assert cli.main(["doctor", "--data-dir", str(data)]) == 2
    whose = pwd.getpwuid(data.stat().st_uid).pw_name
    assert f"runuser -u {whose} -- orchid doctor" in capsys.readouterr().err


def test_every_check_has_a_name_of_its_own_and_a_sentence() -> None:
    """The lists are joined by name; what a check is for is in its docstring."""
    lists = FILE_CHECKS, SERVER_CHECKS, OTHER_KEY_CHECKS, OUTSIDE_CHECKS, checks.CHECKS
    joined = all_checks()

    assert sorted(joined) == sorted(name for part in lists for name in part)
    assert all(check.__doc__ for check in joined.values())


@pytest.mark.parametrize(
    ("own", "state", "words"),
    [(True, "good", "are accepted by it"), (False, "note", "does not contain")],
)
def test_client_certificates_of_our_own_are_accepted_or_not(
    data: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    *,
    own: bool,
    state: str,
    words: str,
) -> None:
    """--client-ca-file replaces our own authority; that may be meant, so it is no fault."""
    other = Authority.create("other", now=datetime.datetime.now(datetime.UTC))
    bundle = other.certificate_pem + ((data / "ca.crt").read_bytes() if own else b"")
    (tmp_path / "clients.crt").write_bytes(bundle)
    capsys.readouterr()

    flags = ("--data-dir", str(data), "--client-ca-file", str(tmp_path / "clients.crt"))
    code = cli.main(["doctor", "-o", "json", *flags])

    found = json.loads(capsys.readouterr().out)["findings"]
    (finding,) = [each for each in found if each["check"] == "client CA"]
    assert (code, finding["state"]) == (0, state)
    assert words in finding["text"]


class Answering:
    """A server with one authority."""

    naming = ORCH

    def __init__(self, ready: dict[str, str]) -> None:
        self._ready = {"type": "Ready", **ready}

    def items(self, place: str) -> list[dict[str, Any]]:
        status = {"conditions": [self._ready], "notAfter": "2036-11-15T00:00:00Z"}
        return [{"metadata": {"name": "web"}, "status": status}]


@pytest.mark.parametrize(
    ("ready", "states"),
    [
        ({"status": "True", "reason": "Issuing", "message": ""}, ["good"]),
        ({"status": "False", "reason": "KeyMismatch", "message": "another"}, ["wrong", "good"]),
    ],
    ids=["ready", "not ready"],
)
def test_an_authority_that_cannot_issue_is_reported(
    ready: dict[str, str], states: list[str]
) -> None:
    """Its certificate may be valid for years all the same."""
    now = datetime.datetime(2026, 11, 18, tzinfo=datetime.UTC)
    here = Installation(cast("Any", None), cast("Any", None), now, cast("Any", Answering(ready)))

    found = list(other_key_checks.authorities(here))

    assert [one.state for one in found] == states


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("revocations.jsonl", "garbage\n", "has 1 lines that cannot be read"),
        ("ledger.checkpoint", "garbage", "ledger.checkpoint cannot be read"),
        ("revocations.jsonl.unreadable-20260101T000000Z", "", "could not be read"),
    ],
)
def test_a_damaged_file_beside_the_store_is_reported(
    data: Path, examine: Examine, name: str, text: str, expected: str
) -> None:
    """Also after the server has written it again: then the old one is beside it."""
    (data / name).write_text(text)

    code, found = examine()

    assert code == 1
    assert [expected in one["text"] for one in found if one["check"] == "files"] == [True]


def test_a_file_beside_the_store_that_cannot_be_opened_is_reported(
    data: Path, examine: Examine
) -> None:
    """A directory, or a right that is missing."""
    (data / "revocations.jsonl").mkdir()

    _, found = examine()

    (one,) = [one for one in found if one["check"] == "files"]
    assert "cannot be read" in one["text"]
