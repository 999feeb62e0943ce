"""Connections to the API servers of clusters, by the names of Kubernetes."""

from typing import Final

import msgspec

from orchid.features.certificates.kinds import certificate_signing_request
from orchid.kernel.client.client import Client
from orchid.kernel.client.reading import FOREIGN
from orchid.kernel.client.transport import Transport
from orchid.kernel.engine.catalog import Catalog
from orchid.kernel.outbound.https_client import HttpsClient
from orchid.kernel.outbound.remote import embedded_remote
from orchid.kernel.server.in_process.clients import user_agent
from orchid.kernel.wire.naming import KUBERNETES

LARGEST_CLUSTER_ANSWER: Final = 3 << 20  # a page; one request in etcd has at most half of that
CLUSTER_TIMEOUT: Final = 30.0  # seconds


class ClusterConnection(msgspec.Struct, frozen=True):
    """A connection to the API server of a cluster: typed verbs, and plain requests."""

    client: Client
    transport: Transport


def cluster_client(kubeconfig: bytes, where: str) -> ClusterConnection:
    """A client of a cluster that knows certificate requests, by the names of Kubernetes."""
    transport = HttpsClient(
        embedded_remote(kubeconfig, where),
        max_answer=LARGEST_CLUSTER_ANSWER,
        timeout=CLUSTER_TIMEOUT,
        user_agent=user_agent(KUBERNETES),
    )
    catalog = Catalog([certificate_signing_request.declare(KUBERNETES)])
    return ClusterConnection(Client(transport, catalog, FOREIGN), transport)
