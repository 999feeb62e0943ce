"""Delete old PodCertificateRequests.

Reads    all podcertificaterequests, at start and then every five minutes
Deletes  those that are older than 15 minutes, settled or not: the node has given up by then
"""

from datetime import datetime, timedelta

from orchid.features.certificates.kinds.pod_certificate_request import PodCertificateRequest
from orchid.kernel.runtime.expiring import expiring
from orchid.kernel.wire.policy_rules import READ, rule

OLD = timedelta(minutes=15)


def is_over(request: PodCertificateRequest, now: datetime) -> bool:
    created = request.metadata.creation_timestamp
    return created is not None and now - created >= OLD


CONTROLLER = expiring(
    "podcertificaterequestcleaner",
    PodCertificateRequest,
    every=timedelta(minutes=5),
    is_over=is_over,
    rights=lambda naming: (
        rule(("delete", *READ), naming.certificates, ("podcertificaterequests",)),
    ),
)
