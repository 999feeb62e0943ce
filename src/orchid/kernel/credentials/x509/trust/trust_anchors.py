"""The content of a trust bundle: PEM blocks of CA certificates.

`problems(text)` lists all errors, with the messages of Kubernetes, for a kind's validation;
`anchors(text)` returns the certificates of a valid bundle. Expired anchors, unusual key types and
text between the blocks are acceptable. Runs in linear time.
"""

from itertools import islice

import msgspec

from orchid.kernel.credentials.refusals import MalformedCertificate, TooMuchPem
from orchid.kernel.credentials.x509 import certificates, pem

MAX_BUNDLE = 1 << 20
MOST_PROBLEMS = 256  # four thousand empty blocks are not each reported


class Problem(msgspec.Struct, frozen=True):
    """An error; `too_long` selects the error type of a size limit."""

    detail: str
    too_long: bool = False


def problems(text: str) -> list[Problem]:
    """All errors in the content of a bundle; empty if it is valid."""
    try:
        blocks = pem.split(text, max_bytes=MAX_BUNDLE)
    except TooMuchPem as refusal:
        if len(text.encode("utf-8", "surrogatepass")) > MAX_BUNDLE:
            return [Problem(f"may not be more than {MAX_BUNDLE} bytes", too_long=True)]
        return [Problem(str(refusal))]
    complaints = (
        Problem(f"entry {index} {complaint}")
        for index, block in enumerate(blocks)
        if (complaint := _complaint(block)) is not None
    )
    if complained := list(islice(complaints, MOST_PROBLEMS)):
        return complained
    if not blocks:
        return [Problem("at least one trust anchor must be provided")]
    return _duplicates(blocks)


def anchors(text: str) -> list[bytes]:
    """The DER certificates of a bundle, in order, without duplicates."""
    blocks = pem.split(text, max_bytes=MAX_BUNDLE)
    return list(dict.fromkeys(block.data for block in blocks if block.label == pem.CERTIFICATE))


def _complaint(block: pem.Block) -> str | None:
    if block.label != pem.CERTIFICATE:
        return f"has bad block type: {block.label}"
    if block.headers:
        return "has PEM block headers"
    try:
        certificate = certificates.parse(block.data)
    except MalformedCertificate:
        return "does not parse as X.509"
    if not certificates.is_authority(certificate):
        return "does not have the CA bit set"
    return None


def _duplicates(blocks: tuple[pem.Block, ...]) -> list[Problem]:
    if len({block.data for block in blocks}) == len(blocks):
        return []
    by_data: dict[bytes, list[int]] = {}
    for index, block in enumerate(blocks):
        by_data.setdefault(block.data, []).append(index)
    return [
        Problem(f"duplicate trust anchor (indices [{' '.join(map(str, indices))}])")
        for indices in by_data.values()
        if len(indices) > 1
    ]
