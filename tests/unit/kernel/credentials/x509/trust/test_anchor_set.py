"""Sets of trust anchors: joined, in order, without what has expired."""

import hashlib
import random
from datetime import UTC, datetime, timedelta

from orchid.kernel.credentials.authorities.authority import Authority
from orchid.kernel.credentials.x509.trust import anchor_set

NOW = datetime(2026, 5, 1, tzinfo=UTC)


def root(name: str, days: int = 10) -> str:
    made = Authority.create(name, now=NOW, lifetime=timedelta(days=days))
    return made.certificate_pem.decode()


def test_each_certificate_appears_once_whatever_the_order() -> None:
    """The text depends on the set of certificates alone."""
    texts = [root("a"), root("b"), root("c")]
    texts.append(texts[0] + texts[2])
    first = anchor_set.join((one for text in texts for one in anchor_set.read(text)), NOW)

    random.Random(1).shuffle(texts)
    second = anchor_set.join((one for text in texts for one in anchor_set.read(text)), NOW)

    assert len(first.anchors) == 3
    assert first.pem == second.pem
    assert first.pem.count(b"-----BEGIN CERTIFICATE-----") == 3
    assert first.sha256 == hashlib.sha256(first.pem).hexdigest()


def test_expired_certificates_are_left_out_at_their_end() -> None:
    """And the set says when that is next."""
    anchors = [*anchor_set.read(root("short", days=1)), *anchor_set.read(root("long", days=9))]

    now = anchor_set.join(anchors, NOW)
    later = anchor_set.join(anchors, NOW + timedelta(days=2))
    never = anchor_set.join(anchors, NOW + timedelta(days=20))

    assert (len(now.anchors), len(later.anchors), len(never.anchors)) == (2, 1, 0)
    assert now.next_end == min(anchor.not_after for anchor in anchors)
    assert (never.next_end, never.pem) == (None, b"")


def test_text_that_is_no_certificate_is_left_out() -> None:
    """A trust bundle is validated when it is written; here nothing fails."""
    broken = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"

    assert len(anchor_set.read(broken + root("a"))) == 1
    assert anchor_set.read("x" * (1 << 21)) == ()
