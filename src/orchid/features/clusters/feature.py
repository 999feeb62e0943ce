"""Kubernetes clusters that ask this server about credentials, and their certificates.

Kinds      Cluster
Pages      /clusters/
Uses       objects, revocation, accounts, certificates, revoking
Read first reviews.py
"""

from collections.abc import Iterable

from orchid.features.clusters.calls import ClusterCalls
from orchid.features.clusters.cluster_status import ClusterStatusWriter
from orchid.features.clusters.controllers import (
    check_clusters,
    clean_clusters,
    record_cluster_certificates,
)
from orchid.features.clusters.kinds import cluster
from orchid.features.clusters.pages import clusters
from orchid.features.clusters.policies.cluster_records import ClusterRecords
from orchid.features.clusters.policies.cluster_revocation import ClusterRevocation
from orchid.features.clusters.record_usage import ClusterRecordUsage
from orchid.features.clusters.reviews import ClusterReviews
from orchid.features.clusters.revoked import ClusterRevocations
from orchid.features.clusters.roles import roles
from orchid.kernel.context import SERVER, Context, ServerPart
from orchid.kernel.engine.interfaces import AdmissionPolicy
from orchid.kernel.feature import Background, Feature
from orchid.kernel.server.pages.site import Page


def _status_writer(context: Context) -> ClusterStatusWriter:
    client = context.clients.of_user(SERVER)
    return ClusterStatusWriter(context.port(ClusterCalls), client, context.clock)


def _policies(context: Context) -> Iterable[AdmissionPolicy]:
    feed = context.feed
    yield ClusterRecords(feed, ClusterRecordUsage(feed))
    revoked = context.port(ClusterRevocations).names
    yield ClusterRevocation(context.naming, feed, context.authorizer, revoked)


def _pages(context: Context) -> dict[str, Page]:
    revocations, calls = context.port(ClusterRevocations), context.port(ClusterCalls)
    return {
        clusters.PREFIX: clusters.ClusterPages(ClusterReviews(context.feed, revocations, calls))
    }


def _background(context: Context, controls: bool) -> Iterable[Background]:
    status = context.port(ClusterStatusWriter)
    yield Background(run=status.run, leave=status.leave)


FEATURE = Feature(
    name="clusters",
    kinds=(cluster.declare,),
    controllers=(
        check_clusters.CONTROLLER,
        clean_clusters.CONTROLLER,
        record_cluster_certificates.CONTROLLER,
    ),
    roles=roles,
    provides=(
        ServerPart(ClusterCalls, lambda context: ClusterCalls(context.clock)),
        ServerPart(ClusterRevocations, lambda context: ClusterRevocations(context.feed)),
        ServerPart(ClusterStatusWriter, _status_writer),
    ),
    policies=_policies,
    pages=_pages,
    counted_pages=(clusters.PREFIX,),
    metrics=lambda context: (context.port(ClusterCalls).results,),
    background=_background,
    documentation="clusters.md",
)
