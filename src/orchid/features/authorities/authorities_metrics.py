"""Expiry of each certificate authority, by signer, as a metric.

Every server shows all of them, from its cache.
"""

from typing import Final

from orchid.features.authorities.kinds.certificate_authority import CertificateAuthority
from orchid.kernel.base.metrics import Family, Joining, Sample
from orchid.kernel.engine.cache.kind_cache import KindCache

NAME: Final = "orchid_certificate_authority_end_seconds"


class AuthorityEnds:
    """A gauge with a series for each authority that has a certificate."""

    def __init__(self, authorities: KindCache[CertificateAuthority]) -> None:
        self._authorities = authorities

    def family(self) -> Family:
        samples = []
        for entry in self._authorities.scan():
            authority = entry.object
            if authority.status.not_after is not None:
                end = authority.status.not_after.timestamp()
                for signer in authority.signers:
                    labels = (("authority", authority.name), ("signer", signer))
                    samples.append(Sample(labels, end))
        text = "Expiry of a certificate authority, in seconds since the epoch."
        return Family(NAME, "gauge", text, samples, Joining.MOST)

    def reset(self) -> None:
        """Gauges are not reset."""
