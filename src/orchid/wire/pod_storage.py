"""Volumes of a Pod that are reached with a Secret: one type for each sort of storage.

Only the Secret is declared, because that is what a Pod's account may limit and a node may read; all
else about such a volume is kept as given. `Volume` in pod_sources.py has a field for each.
"""

from typing import Annotated, Any

from msgspec import field

from orchid.wire.references import LocalObjectReference
from orchid.wire.struct import Wire, describe, proto, shaped_like


class CephFSVolumeSource(Wire):
    """A directory of Ceph."""

    published_as = "core.v1.CephFSVolumeSource"

    secret_ref: Annotated[
        dict[str, Any] | None,
        shaped_like(LocalObjectReference),
        proto(5),
        describe("The Secret with what it takes to reach it."),
    ] = None


class CinderVolumeSource(Wire):
    """A volume of Cinder."""

    published_as = "core.v1.CinderVolumeSource"

    secret_ref: Annotated[
        dict[str, Any] | None,
        shaped_like(LocalObjectReference),
        proto(4),
        describe("The Secret with what it takes to reach it."),
    ] = None


class FlexVolumeSource(Wire):
    """A volume of some driver."""

    published_as = "core.v1.FlexVolumeSource"

    secret_ref: Annotated[
        dict[str, Any] | None,
        shaped_like(LocalObjectReference),
        proto(3),
        describe("The Secret with what it takes to reach it."),
    ] = None


class ISCSIVolumeSource(Wire):
    """A disk behind iSCSI."""

    published_as = "core.v1.ISCSIVolumeSource"

    secret_ref: Annotated[
        dict[str, Any] | None,
        shaped_like(LocalObjectReference),
        proto(10),
        describe("The Secret with what it takes to reach it."),
    ] = None


class RBDVolumeSource(Wire):
    """A block device of Ceph."""

    published_as = "core.v1.RBDVolumeSource"

    secret_ref: Annotated[
        dict[str, Any] | None,
        shaped_like(LocalObjectReference),
        proto(7),
        describe("The Secret with what it takes to reach it."),
    ] = None


class ScaleIOVolumeSource(Wire):
    """A volume of ScaleIO."""

    published_as = "core.v1.ScaleIOVolumeSource"

    secret_ref: Annotated[
        dict[str, Any] | None,
        shaped_like(LocalObjectReference),
        proto(3),
        describe("The Secret with what it takes to reach it."),
    ] = None


class StorageOSVolumeSource(Wire):
    """A volume of StorageOS."""

    published_as = "core.v1.StorageOSVolumeSource"

    secret_ref: Annotated[
        dict[str, Any] | None,
        shaped_like(LocalObjectReference),
        proto(5),
        describe("The Secret with what it takes to reach it."),
    ] = None


class CSIVolumeSource(Wire):
    """A volume of a CSI driver, made for this Pod."""

    published_as = "core.v1.CSIVolumeSource"

    node_publish_secret_ref: Annotated[
        dict[str, Any] | None,
        shaped_like(LocalObjectReference),
        proto(5),
        describe("The Secret with what it takes to reach it."),
    ] = None


class AzureFileVolumeSource(Wire):
    """A share of Azure."""

    published_as = "core.v1.AzureFileVolumeSource"

    secret_name: Annotated[
        str, proto(1), describe("The Secret with what it takes to reach it.")
    ] = field(default_factory=str)
