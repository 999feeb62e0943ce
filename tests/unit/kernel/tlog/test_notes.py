"""Notes, checkpoints and proof files: signed, opened, and refused when anything is changed."""

import base64

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from orchid.kernel.tlog.checkpoints import Checkpoint
from orchid.kernel.tlog.merkle import leaf_hash
from orchid.kernel.tlog.notes import MAX_NOTE, NoteRefused, NoteSigner, NoteVerifier
from orchid.kernel.tlog.proof_file import ProofFile
from orchid.kernel.tlog.proofs import ProofRefused
from tests.unit.kernel.tlog import naive

SIGNER = NoteSigner("example.com/log", Ed25519PrivateKey.from_private_bytes(b"k" * 32))
OTHER = NoteSigner("example.com/log", Ed25519PrivateKey.from_private_bytes(b"o" * 32))
# The example of C2SP signed-note.
VKEY = "example.com/foo+530d903a+AekyeRrm56hApGFkyQR4ZCbV54Id2LKaANYcrnKv3U2k"
NOTE = (
    "This is an example message.\n\n"
    "— example.com/foo Uw2QOkn8srV1yJGh2VYRlL1Tnagv1YEq6TfXppzi2ONncAlTgK7Ztg1ERYNZXsYjOBH3mFXm"
    "RKuwHjG1Yu72IneyaQM=\n"
).encode()


def test_the_example_of_the_specification_opens() -> None:
    """A note that another implementation signed is read with the key given beside it."""
    verifier = NoteVerifier.parse(VKEY)

    assert verifier.opened(NOTE) == "This is an example message.\n"
    assert verifier.vkey == VKEY


@given(st.text(st.characters(codec="utf-8", exclude_categories=["Cc"]), max_size=40))
def test_what_was_signed_opens(line: str) -> None:
    """Any text comes back, with empty lines in it too."""
    text = f"{line}\n\n{line}\n"

    assert SIGNER.verifier.opened(SIGNER.signed(text)) == text


@given(st.data())
def test_a_changed_byte_is_refused(data: st.DataObject) -> None:
    """No byte of a note can be changed."""
    note = bytearray(SIGNER.signed("a text\n"))
    place = data.draw(st.integers(0, len(note) - 1))
    note[place] ^= data.draw(st.integers(1, 255))

    with pytest.raises(NoteRefused):
        SIGNER.verifier.opened(bytes(note))


def test_signatures_of_others_are_passed_over() -> None:
    """A note may carry witnesses whom we do not know; ours must be there and right."""
    text = "a text\n"
    ours, theirs = SIGNER.signed(text), OTHER.signed(text)
    both = theirs + ours.rpartition(b"\n\n")[2]

    assert SIGNER.verifier.opened(both) == text
    assert OTHER.verifier.opened(both) == text
    with pytest.raises(NoteRefused, match="not signed by"):
        SIGNER.verifier.opened(theirs)


@pytest.mark.parametrize(
    "note",
    [
        b"", b"text\n", b"text\n\n", b"text\n\nno signature\n", b"text\n\n\xe2\x80\x94 name QUJD\n",
        b"te\txt\n\n" + NOTE, b"\xff\n\n" + NOTE, b"x" * MAX_NOTE + NOTE, NOTE.rstrip(b"\n"),
        b"text\n\n" + NOTE.rpartition(b"\n\n")[2] * 65,
    ],
)  # fmt: skip
def test_what_is_no_note_is_refused(note: bytes) -> None:
    """Malformed, oversized and unsigned texts are refused before any key is used."""
    with pytest.raises(NoteRefused):
        NoteVerifier.parse(VKEY).opened(note)


@pytest.mark.parametrize(
    "vkey",
    [
        "", "name", "name+00000000+", VKEY.replace("530d", "530e"), VKEY.replace("+Ae", "+Be"),
        VKEY.replace("example.com/foo", "exam ple"), VKEY[:-4], VKEY.replace("example.com/foo", ""),
    ],
)  # fmt: skip
def test_a_wrong_verifier_key_is_refused(vkey: str) -> None:
    """The id in a key's line must be that of the name and the key."""
    with pytest.raises(NoteRefused):
        NoteVerifier.parse(vkey)


def test_a_text_without_its_last_newline_is_not_signed() -> None:
    """The end of such a text would be ambiguous."""
    with pytest.raises(ValueError, match="newline"):
        SIGNER.signed("text")


def test_a_checkpoint_opens_with_the_key_of_its_log() -> None:
    """Origin, size and root come back as they were signed."""
    checkpoint = Checkpoint("example.com/log", 7, leaf_hash(b"root"))

    note = checkpoint.signed(SIGNER)

    assert Checkpoint.opened(note, SIGNER.verifier) == checkpoint
    assert Checkpoint.claimed(note) == checkpoint
    with pytest.raises(NoteRefused):
        Checkpoint.opened(note, OTHER.verifier)


def test_a_checkpoint_of_another_log_is_refused() -> None:
    """The same key may sign for another log; that is not this one."""
    note = Checkpoint("example.com/other", 7, leaf_hash(b"root")).signed(SIGNER)

    with pytest.raises(NoteRefused, match=r"is of 'example\.com/other'"):
        Checkpoint.opened(note, SIGNER.verifier)


ROOT = base64.b64encode(bytes(32)).decode()


@pytest.mark.parametrize(
    "text",
    [
        "example.com/log\n", "example.com/log\n7\n", f"example.com/log\n07\n{ROOT}\n",
        f"example.com/log\n-1\n{ROOT}\n", f"\n7\n{ROOT}\n", "example.com/log\n7\nAAAA\n",
        f"example.com/log\n7\n{ROOT}\n\nmore\n", "example.com/log\n7\n!\n", "\n",
    ],
)  # fmt: skip
def test_a_note_that_is_no_checkpoint_is_refused(text: str) -> None:
    """Also what our own key signed is read with care."""
    with pytest.raises(NoteRefused):
        Checkpoint.opened(SIGNER.signed(text), SIGNER.verifier)


def proof_file(count: int, index: int) -> ProofFile:
    entries = [b"entry %d" % number for number in range(count)]
    note = Checkpoint("example.com/log", count, naive.root(entries)).signed(SIGNER)
    return ProofFile(entries[index], index, naive.path(index, entries), note)


@pytest.mark.parametrize(("count", "index"), [(1, 0), (5, 4), (300, 17)])
def test_a_proof_file_is_read_and_holds(count: int, index: int) -> None:
    """The file alone, with the log's key, shows that its entry is in the log."""
    written = proof_file(count, index).encode()

    read = ProofFile.parse(written)

    assert read == proof_file(count, index)
    assert read.opened(SIGNER.verifier).size == count


def test_a_proof_file_for_another_entry_is_refused() -> None:
    """The entry in the file is the one that is proven, or nothing is."""
    proof = proof_file(5, 2)
    other = ProofFile(b"entry 3", proof.index, proof.hashes, proof.note)

    with pytest.raises(ProofRefused):
        ProofFile.parse(other.encode()).opened(SIGNER.verifier)


@pytest.mark.parametrize(
    "data",
    [
        b"", b"\n\n", b"c2sp.org/tlog-proof@v2\nextra QQ==\nindex 0\n\nnote",
        b"c2sp.org/tlog-proof@v1\nindex 0\n\nn", b"c2sp.org/tlog-proof@v1\nextra !\nindex 0\n\nn",
        b"c2sp.org/tlog-proof@v1\nextra QQ==\nindex 00\n\nnote", b"\xff\n\n", b"x" * (1 << 21),
    ],
)  # fmt: skip
def test_what_is_no_proof_file_is_refused(data: bytes) -> None:
    """Malformed and oversized files are refused by name."""
    with pytest.raises(ProofRefused):
        ProofFile.parse(data)


def test_a_second_spelling_of_a_signature_is_refused() -> None:
    """Bits after the last byte are zero: otherwise one signature would have several notes."""
    note = SIGNER.signed("text\n")
    assert note.endswith(b"=\n")  # 68 bytes: the last digit has two bits to spare
    digit = note[-3:-2].decode()
    digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
    other = note[:-3] + digits[digits.index(digit) + 1].encode() + note[-2:]

    with pytest.raises(NoteRefused, match="not canonical"):
        SIGNER.verifier.opened(other)
