"""Kubernetes clusters that ask this server about credentials, and their certificates.

Kinds      Cluster
Pages      /clusters/
Uses       objects, revocation, accounts, certificates, revoking
Read first reviews.py
"""

from orchid.features.clusters.controllers import (
    check_clusters,
    clean_clusters,
    record_cluster_certificates,
)
from orchid.features.clusters.kinds import cluster
from orchid.features.clusters.roles import roles
from orchid.kernel.feature import Feature

FEATURE = Feature(
    name="clusters",
    kinds=(cluster.declare,),
    controllers=(
        check_clusters.CONTROLLER,
        clean_clusters.CONTROLLER,
        record_cluster_certificates.CONTROLLER,
    ),
    roles=roles,
    documentation="clusters.md",
)
