"""The file of sealing keys is changed by commands: a key is added in front, or removed."""

import base64
import json

import pytest

from orchid.features.sealing.encryption import (
    InvalidEncryption,
    key_names,
    with_new_key,
    without_key,
)

SECRET = base64.b64encode(b"s" * 32).decode()


def file(*providers: dict[str, object], comment: str = "") -> bytes:
    document = {
        "apiVersion": "apiserver.config.orch.io/v1",
        "kind": "EncryptionConfiguration",
        "resources": [{"resources": ["secrets"], "providers": list(providers)}],
    }
    return f"{comment}{json.dumps(document)}".encode()


def aes(*names: str) -> dict[str, object]:
    return {"aesgcm": {"keys": [{"name": name, "secret": SECRET} for name in names]}}


PLAIN: dict[str, object] = {"identity": {}}


@pytest.mark.parametrize(
    ("before", "names"),
    [
        (file(aes("key1"), PLAIN), ["key2", "key1"]),
        (file(aes("key7", "key3"), PLAIN), ["key8", "key7", "key3"]),
        (file(PLAIN, aes("mine")), ["key1", "mine"]),
        (file({"secretbox": aes("key1")["aesgcm"]}, PLAIN), ["key2", "key1"]),
    ],
    ids=["next", "highest", "clear-text-first", "secretbox"],
)
def test_a_new_key_is_in_front_under_a_new_name(before: bytes, names: list[str]) -> None:
    """It has 32 random bytes, and all others stay."""
    name, after = with_new_key(before)
    other = with_new_key(before)[1]

    assert name == names[0]
    assert key_names(after) == names
    (first, *_) = json.loads(after)["resources"][0]["providers"]
    assert len(base64.b64decode(first["aesgcm"]["keys"][0]["secret"])) == 32
    assert after != other


def test_a_key_is_removed_and_the_comment_stays() -> None:
    """A provider without keys is removed with its last one."""
    before = file(aes("key2"), aes("key1"), PLAIN, comment="# ours\n# and theirs\n")

    after = without_key(before, "key1")

    assert after.startswith(b"# ours\n# and theirs\n{")
    assert key_names(after) == ["key2"]
    assert b"identity" in after


@pytest.mark.parametrize(
    ("before", "why"),
    [
        (file(aes("key2"), PLAIN), "there is no key 'key1'"),
        (file(aes("key1"), PLAIN), "'key1' is the only key"),
        (file(aes("key1")), "'key1' is the only key of secrets"),
        (b"kind: Pod", "EncryptionConfiguration"),
    ],
    ids=["absent", "last", "nothing-left", "no-file"],
)
def test_what_cannot_be_removed_is_refused(before: bytes, why: str) -> None:
    """With a sentence, and without a secret in it."""
    with pytest.raises(InvalidEncryption, match=why) as refusal:
        without_key(before, "key1")

    assert SECRET not in str(refusal.value)
