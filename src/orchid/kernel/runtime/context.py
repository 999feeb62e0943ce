"""Dependencies of the controllers besides the API, built by the assembly."""

from collections.abc import Awaitable, Callable, Collection, Mapping
from datetime import timedelta

import msgspec

from orchid.kernel.base.clock import Clock
from orchid.kernel.base.metrics import Counter, Gauge, Joining
from orchid.kernel.client.client import Client
from orchid.kernel.client.transport import Transport
from orchid.kernel.credentials.authorities.authority import Authority
from orchid.kernel.credentials.authorities.hsm import NO_HSM, KeysOfHsm
from orchid.kernel.credentials.authorities.profiles import Profile
from orchid.kernel.credentials.tokens import TokenSigner
from orchid.kernel.outbound.answer import Answer
from orchid.kernel.wire.naming import Naming


class Signer(msgspec.Struct, frozen=True):
    """A platform signer: its profile, and its current authority."""

    profile: Profile
    authority: Callable[[], Authority]
    list_name: str = "cluster"  # of its authority's revocation list
    crl_url: str = ""  # the URL of that list for certificates; "" for none


class KeyRotation(msgspec.Struct, frozen=True):
    """When stored token keys are replaced and removed."""

    is_stored: bool  # otherwise token keys are files, and none of this applies
    period: timedelta  # how long a key signs; zero: it is replaced by hand
    publish_time: timedelta  # how long a key is published before it may sign
    retention: timedelta  # how long a Retired key is kept
    # Fetches the ids of the keys at --service-account-jwks-uri, if that is another server.
    elsewhere: Callable[[], Awaitable[Collection[str]]] | None = None


class ClusterConnection(msgspec.Struct, frozen=True):
    """A connection to the API server of a cluster: typed verbs, and plain requests."""

    client: Client
    transport: Transport


class NoticeMetrics:
    """Counts of the notices of this process; only the leader sends any."""

    def __init__(self) -> None:
        text = "Notices by event and result: delivered, failed (an attempt), limited, given-up."
        self.results = Counter("orchid_notices_total", text, "event", "result")
        text = "Notices that wait for the receiver."
        self.pending = Gauge("orchid_notices_pending", text, joins=Joining.MOST)
        text = "1 while the last attempt to send a notice has failed."
        self.failing = Gauge("orchid_notices_failing", text, joins=Joining.MOST)

    @property
    def all(self) -> tuple[Counter, ...]:
        return self.results, self.pending, self.failing


class NoticeReceiver(msgspec.Struct, frozen=True):
    """The server that notices are sent to."""

    post: Callable[[bytes, str], Awaitable[Answer]]  # body and media type
    issuer: str  # of the signed notices
    audience: str


class NoticeSettings(msgspec.Struct, frozen=True):
    """Where notices are sent, and when ends are announced."""

    receiver: NoticeReceiver
    before: timedelta  # how long before its end something is announced
    metrics: NoticeMetrics


class ControllerContext(msgspec.Struct, frozen=True):
    """Dependencies of the controllers besides the API."""

    names: Naming
    clock: Clock
    signers: Mapping[str, Signer]  # those of the platform that have an authority in files
    signing_duration: timedelta
    crl_url: str  # the base URL of the revocation lists for certificates; "" for none
    issued_retention: timedelta  # how long the record of a certificate outlives it
    token_issuer: Callable[[], TokenSigner] | None  # of the tokens of Secrets
    root_ca: Callable[[], str]  # the CA bundle for this server; "" if unknown
    identity: str  # of this process among the candidates for leader
    key_rotation: KeyRotation
    # A client of a cluster, from a kubeconfig and what that is from; raises InvalidRemote.
    cluster_client: Callable[[bytes, str], ClusterConnection] | None = None
    notices: NoticeSettings | None = None  # None: none are sent
    hsm: KeysOfHsm = NO_HSM  # with keys of authorities
