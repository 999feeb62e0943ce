"""CertificateRows: rows in blocks, in the order of their ends."""

import random

import pytest

from orchid.features.certificates import certificate_rows
from orchid.features.certificates.certificate_rows import CertificateRows, Origin, Row

ORIGIN = Origin("x/web", "", "", "", "")


def row(end: float, key: str) -> Row:
    return Row(end, key, len(key), "", "", ORIGIN, 0.0, False, 0, 1)


def test_rows_stay_in_order_in_small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """After any changes, also of rows that another block has got, and with many equal ends."""
    monkeypatch.setattr(certificate_rows, "LARGEST_BLOCK", 3)
    chosen = random.Random(1)
    rows = CertificateRows()
    expected: dict[str, float] = {}
    for _ in range(600):
        key = f"r{chosen.randrange(30)}"
        if chosen.random() < 0.6:
            expected[key] = float(chosen.randrange(4))
            rows.put(row(expected[key], key))
        else:
            expected.pop(key, None)
            rows.remove(key)

        found = [one for block in rows.blocks for one in zip(block.ends, block.keys, strict=True)]
        assert found == sorted((end, key) for key, end in expected.items())
        assert all(1 <= len(block) <= 3 for block in rows.blocks)
        assert len(rows) == len(expected)
