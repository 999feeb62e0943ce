"""Certificates of Pods: accepted while their account and their Pod exist, as tokens are.

A certificate that names a service account together with its uid was issued by a
PodCertificateRequest: no other request leads to a uid in the subject. Its record in the inventory
names the Pod. Account and Pod are looked up in every request, by uid. A certificate of this form
without a record is refused, since nothing says which Pod it belongs to. Start with
`PodCertificates.refuse_ended`.
"""

from datetime import datetime
from typing import Any

from orchid.features.accounts.authenticators.service_account_token import DELETION_LEEWAY
from orchid.features.accounts.kinds.service_account import ServiceAccount
from orchid.features.objects.kinds.pod.pod import Pod
from orchid.features.revocation.revocations import Revocations
from orchid.kernel.base.clock import Clock
from orchid.kernel.credentials.x509.certificates import Identity
from orchid.kernel.credentials.x509.trust.verified_chain import VerifiedChain
from orchid.kernel.engine.cache.feed import Feed
from orchid.kernel.engine.cache.kind_cache import KindCache
from orchid.kernel.engine.interfaces import Rejected
from orchid.kernel.wire.text import quote
from orchid.kernel.wire.user import account_of


class PodCertificates:
    """The accounts and Pods that certificates are bound to."""

    def __init__(self, feed: Feed, clock: Clock, revocations: Revocations) -> None:
        self._accounts = feed.of(ServiceAccount)
        self._pods = feed.of(Pod)
        self._clock = clock
        self._revocations = revocations

    def refuse_ended(self, identity: Identity, chain: VerifiedChain) -> None:
        """Raise Rejected if the account or the Pod of a certificate is gone. Call when fresh."""
        account = account_of(identity.user) if identity.uid else None
        if account is None:
            return
        record = self._revocations.record(chain)
        pod = record.object.spec.pod if record else None
        if record is None or pod is None:
            raise Rejected("the certificate names a service account and no record names its Pod")
        now = self._clock.now()
        refuse_gone(self._accounts, account, identity.uid, now)
        refuse_gone(self._pods, (pod.namespace, pod.name), pod.uid, now)


def refuse_gone(cache: KindCache[Any], key: tuple[str, str], uid: str, now: datetime) -> None:
    entry = cache.get(*key)
    what = f"{cache.kind.singular} {quote('/'.join(key))}"
    if entry is None:
        raise Rejected(f"the {what} of the certificate does not exist")
    live = entry.identity
    if live.uid != uid:
        raise Rejected(f"the {what} is not the one that the certificate was issued for")
    if live.deletion_timestamp is not None and live.deletion_timestamp < now - DELETION_LEEWAY:
        raise Rejected(f"the {what} of the certificate has been deleted")
