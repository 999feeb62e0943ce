"""The interface of an output's content, and what its implementations share in one round."""

import datetime
from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from orchid.features.hosts.agent.calls import Clocks, ServerCalls
from orchid.features.hosts.agent.generations import OutputFile
from orchid.features.hosts.agent.host_identity import HostIdentity
from orchid.features.hosts.agent.state_directory import StateDirectory
from orchid.features.hosts.agent.trust import bundle_of
from orchid.kernel.outbound.api_connection import Json, path

Files = Mapping[str, bytes]


class ContentFailed(Exception):
    """The content cannot be created; the message says what to change."""


class Life(NamedTuple):
    """When a credential expires and when it is due for renewal; None: never."""

    expires: datetime.datetime | None = None
    renews: datetime.datetime | None = None

    def is_expired(self, now: datetime.datetime) -> bool:
        return self.expires is not None and self.expires <= now

    def is_due(self, now: datetime.datetime) -> bool:
        return self.renews is not None and self.renews <= now


class Fresh(NamedTuple):
    """The files that an output should have now; the same as before if nothing is due."""

    files: Sequence[OutputFile]
    life: Life


class Round:
    """One round of checks: the connection, and objects that several outputs need."""

    def __init__(
        self, calls: ServerCalls, identity: HostIdentity, state: StateDirectory, clocks: Clocks
    ) -> None:
        self.calls, self.identity, self.state, self.clocks = calls, identity, state, clocks
        self._bundles: dict[str, bytes] = {}
        self._pods: list[Json] | None = None

    def anchors(self, signer: str) -> bytes:
        """The trust anchors of a signer; b"" if it has no bundle."""
        if signer not in self._bundles:
            self._bundles[signer] = bundle_of(self.calls, signer)
        return self._bundles[signer]

    def bundle(self, signer: str) -> bytes:
        """The same of a signer that must have a bundle."""
        if not self.anchors(signer):
            raise ContentFailed(f"the signer {signer} has no trust bundle")
        return self.anchors(signer)

    def pods(self, account: str) -> list[Json]:
        """The Pods that place an account on this host."""
        if self._pods is None:
            query = {"fieldSelector": f"spec.nodeName={self.identity.host}"}
            self._pods = list(self.calls.get(path("api", "v1", "pods"), query).get("items") or ())
        namespace, _, name = account.partition("/")
        return [
            pod
            for pod in self._pods
            if pod["metadata"]["namespace"] == namespace
            and pod["spec"].get("serviceAccountName") == name
            and not pod["metadata"].get("deletionTimestamp")
        ]


def projected_sources(pod: Json) -> list[Json]:
    """Credentials that a Pod lets its host get: the sources of its projected volumes."""
    volumes = pod["spec"].get("volumes") or ()
    return [
        source
        for volume in volumes
        for source in (volume.get("projected") or {}).get("sources") or ()
    ]


class Content(Protocol):
    """The content of the files of an output."""

    def life(self, files: Files) -> Life | None:
        """When the present files expire and are due, without the server; None: not usable."""

    def refresh(self, name: str, files: Files, current: Round) -> Fresh:
        """The files as they should be; raises Waiting, Denied, ContentFailed or ApiFailure."""
