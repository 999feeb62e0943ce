"""Files of keys: whose they may be, and who may reach them."""

import os
import stat
from pathlib import Path

import pytest

from orchid.kernel.credentials import files
from orchid.kernel.credentials.refusals import ExposedKeyFile

ROOT, US, OTHER = 0, 1000, 1001
FILE, DIRECTORY = stat.S_IFREG, stat.S_IFDIR

JUDGED = {
    "ours alone": (US, US, FILE | 0o600, None),
    "ours, read only": (US, US, FILE | 0o400, None),
    "ours, readable by the group": (US, US, FILE | 0o640, "chmod 0600"),
    "ours, readable by all": (US, US, FILE | 0o604, "chmod 0600"),
    "ours, executable by the group": (US, US, FILE | 0o610, "chmod 0600"),
    "root's alone": (US, ROOT, FILE | 0o600, None),
    "root's, handed to our group": (US, ROOT, FILE | 0o640, None),
    "root's, writable by the group": (US, ROOT, FILE | 0o660, "chmod 0600"),
    "root's, readable by all": (US, ROOT, FILE | 0o644, "chmod 0600"),
    "somebody else's": (US, OTHER, FILE | 0o600, "another user (uid 1001); run: chown 1000"),
    "somebody else's, for the group": (US, OTHER, FILE | 0o640, "another user"),
    "as root: root's alone": (ROOT, ROOT, FILE | 0o600, None),
    "as root: root's, for the group": (ROOT, ROOT, FILE | 0o640, "chmod 0600"),
    "as root: somebody's": (ROOT, OTHER, FILE | 0o600, "another user (uid 1001); run: chown 0"),
    "directory of ours": (US, US, DIRECTORY | 0o700, None),
    "directory, open to the group": (US, US, DIRECTORY | 0o750, "chmod 0700"),
    "directory of root's, open to the group": (US, ROOT, DIRECTORY | 0o750, "chmod 0700"),
    "directory of somebody else": (US, OTHER, DIRECTORY | 0o700, "another user"),
    "as root: directory of somebody": (ROOT, OTHER, DIRECTORY | 0o700, "another user"),
}


@pytest.mark.parametrize("case", JUDGED)
def test_owner_and_mode_are_judged(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Owned by the user or root, not readable by others; the error has the command to fix it."""
    us, owner, mode, refusal = JUDGED[case]
    monkeypatch.setattr(os, "geteuid", lambda: us)
    status = os.stat_result((mode, 1, 1, 1, owner, 1, 1, 0, 0, 0))

    if refusal is None:
        files.refuse_exposed(Path("secret"), status)
    else:
        with pytest.raises(ExposedKeyFile) as caught:
            files.refuse_exposed(Path("secret"), status)
        assert refusal in str(caught.value)
        assert str(caught.value).endswith(" secret")


def test_a_key_of_another_user_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also by root, who could."""
    path = tmp_path / "key.pem"
    files.write_private(path, b"key")
    assert files.read_private(path) == b"key"
    stranger = os.geteuid() + 1
    if os.geteuid() == ROOT:
        os.chown(path, stranger, -1)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: stranger)

    with pytest.raises(ExposedKeyFile, match="belongs to another user"):
        files.read_private(path)
