"""What a Pod takes from other objects: files in its volumes, words in its environment.

Start with `Volume` and `Container`. These are the parts of a Pod that tell which Secrets, config
maps, tokens and trust bundles its node may read for it. Everything else about a volume or a
container is kept as given, and does not travel as protobuf.

The reference keeps some of these fields in a message of their own although JSON does not show it;
`inside` names that message's number.
"""

from typing import Annotated, Any

from msgspec import field

from orchid.wire.pod_storage import (
    AzureFileVolumeSource,
    CephFSVolumeSource,
    CinderVolumeSource,
    CSIVolumeSource,
    FlexVolumeSource,
    ISCSIVolumeSource,
    RBDVolumeSource,
    ScaleIOVolumeSource,
    StorageOSVolumeSource,
)
from orchid.wire.struct import Wire, at_most, describe, merge_key, proto, shaped_like

MOST_SOURCES = 1000  # of one volume


class KeyToPath(Wire):
    """One key, and the file that it becomes."""

    published_as = "core.v1.KeyToPath"

    key: Annotated[str, proto(1), describe("The key.")] = field(default_factory=str)
    path: Annotated[str, proto(2), describe("The file, relative to where it is mounted.")] = field(
        default_factory=str
    )
    mode: Annotated[int | None, proto(3, "int32"), describe("Who may read the file.")] = None


class NamedSource(Wire):
    """Keys of an object in the same namespace."""

    name: Annotated[str, proto(1, inside=1), describe("The name of the object.")] = ""
    items: Annotated[
        tuple[Annotated[dict[str, Any], shaped_like(KeyToPath)], ...],
        proto(2),
        describe("Which keys become which files; all, if it is left out."),
    ] = ()


class ConfigMapVolumeSource(NamedSource):
    """A config map as files."""

    published_as = "core.v1.ConfigMapVolumeSource"

    default_mode: Annotated[int | None, proto(3, "int32"), describe("Who may read them.")] = None
    optional: Annotated[bool | None, proto(4), describe("Whether it may be missing.")] = None


class ConfigMapProjection(NamedSource):
    """A config map as files, among others."""

    published_as = "core.v1.ConfigMapProjection"

    optional: Annotated[bool | None, proto(4), describe("Whether it may be missing.")] = None


class SecretProjection(NamedSource):
    """A Secret as files, among others."""

    published_as = "core.v1.SecretProjection"

    optional: Annotated[bool | None, proto(4), describe("Whether it may be missing.")] = None


class SecretVolumeSource(Wire):
    """A Secret as files."""

    published_as = "core.v1.SecretVolumeSource"

    secret_name: Annotated[str, proto(1), describe("The name of the Secret.")] = ""
    items: Annotated[
        tuple[Annotated[dict[str, Any], shaped_like(KeyToPath)], ...],
        proto(2),
        describe("Which keys become which files; all, if it is left out."),
    ] = ()
    default_mode: Annotated[int | None, proto(3, "int32"), describe("Who may read them.")] = None
    optional: Annotated[bool | None, proto(4), describe("Whether it may be missing.")] = None


class ServiceAccountTokenProjection(Wire):
    """A token of the Pod's account as a file."""

    published_as = "core.v1.ServiceAccountTokenProjection"

    audience: Annotated[str, proto(1), describe("For whom it is; if empty, for this server.")] = ""
    expiration_seconds: Annotated[int | None, proto(2), describe("How long it lasts.")] = None
    path: Annotated[str, proto(3), describe("The file.")] = field(default_factory=str)


class ClusterTrustBundleProjection(Wire):
    """Trust anchors as a file."""

    published_as = "core.v1.ClusterTrustBundleProjection"

    name: Annotated[str | None, proto(1), describe("One bundle, by name.")] = None
    signer_name: Annotated[str | None, proto(2), describe("All bundles of a signer.")] = None
    path: Annotated[str, proto(4), describe("The file.")] = field(default_factory=str)
    optional: Annotated[bool | None, proto(5), describe("Whether there may be none.")] = None


class ObjectFieldSelector(Wire):
    """A field of the Pod."""

    published_as = "core.v1.ObjectFieldSelector"
    atomic = True

    api_version: Annotated[str, proto(1), describe("The version in which it has this path.")] = ""
    field_path: Annotated[str, proto(2), describe("The path.")] = field(default_factory=str)


class DownwardAPIVolumeFile(Wire):
    """A field of the Pod as a file."""

    published_as = "core.v1.DownwardAPIVolumeFile"

    path: Annotated[str, proto(1), describe("The file.")] = field(default_factory=str)
    field_ref: Annotated[
        dict[str, Any] | None, shaped_like(ObjectFieldSelector), proto(2), describe("The field.")
    ] = None
    mode: Annotated[int | None, proto(4, "int32"), describe("Who may read the file.")] = None


class DownwardAPIProjection(Wire):
    """Fields of the Pod as files, among others."""

    published_as = "core.v1.DownwardAPIProjection"

    items: Annotated[
        tuple[Annotated[dict[str, Any], shaped_like(DownwardAPIVolumeFile)], ...],
        proto(1),
        describe("The files."),
    ] = ()


class VolumeProjection(Wire):
    """One source of a volume that has several."""

    published_as = "core.v1.VolumeProjection"

    secret: Annotated[
        dict[str, Any] | None, shaped_like(SecretProjection), proto(1), describe("A Secret.")
    ] = None
    config_map: Annotated[
        dict[str, Any] | None, shaped_like(ConfigMapProjection), proto(3), describe("A config map.")
    ] = None
    service_account_token: Annotated[
        dict[str, Any] | None,
        shaped_like(ServiceAccountTokenProjection),
        proto(4),
        describe("A token of the Pod's account."),
    ] = None
    downward_api: Annotated[
        dict[str, Any] | None,
        shaped_like(DownwardAPIProjection),
        proto(2),
        describe("Fields of the Pod itself."),
    ] = field(default=None, name="downwardAPI")
    cluster_trust_bundle: Annotated[
        dict[str, Any] | None,
        shaped_like(ClusterTrustBundleProjection),
        proto(5),
        describe("Trust anchors."),
    ] = None


class ProjectedVolumeSource(Wire):
    """Several sources in one volume."""

    published_as = "core.v1.ProjectedVolumeSource"

    sources: Annotated[
        tuple[Annotated[dict[str, Any], shaped_like(VolumeProjection)], ...],
        at_most(MOST_SOURCES),
        proto(1),
        describe("The sources."),
    ] = ()
    default_mode: Annotated[int | None, proto(2, "int32"), describe("Who may read them.")] = None


class Volume(Wire):
    """Something mounted; sorts that are not listed are kept as given."""

    published_as = "core.v1.Volume"

    name: Annotated[str, proto(1), describe("The name by which containers mount it.")] = field(
        default_factory=str
    )
    secret: Annotated[
        dict[str, Any] | None,
        shaped_like(SecretVolumeSource),
        proto(6, inside=2),
        describe("A Secret."),
    ] = None
    config_map: Annotated[
        dict[str, Any] | None,
        shaped_like(ConfigMapVolumeSource),
        proto(19, inside=2),
        describe("A config map."),
    ] = None
    projected: Annotated[
        dict[str, Any] | None,
        shaped_like(ProjectedVolumeSource),
        proto(26, inside=2),
        describe("Several sources at once."),
    ] = None
    iscsi: Annotated[
        dict[str, Any] | None,
        shaped_like(ISCSIVolumeSource),
        proto(8, inside=2),
        describe("A disk behind iSCSI."),
    ] = None
    rbd: Annotated[
        dict[str, Any] | None,
        shaped_like(RBDVolumeSource),
        proto(11, inside=2),
        describe("A block device of Ceph."),
    ] = None
    flex_volume: Annotated[
        dict[str, Any] | None,
        shaped_like(FlexVolumeSource),
        proto(12, inside=2),
        describe("A volume of some driver."),
    ] = None
    cinder: Annotated[
        dict[str, Any] | None,
        shaped_like(CinderVolumeSource),
        proto(13, inside=2),
        describe("A volume of Cinder."),
    ] = None
    cephfs: Annotated[
        dict[str, Any] | None,
        shaped_like(CephFSVolumeSource),
        proto(14, inside=2),
        describe("A directory of Ceph."),
    ] = None
    azure_file: Annotated[
        dict[str, Any] | None,
        shaped_like(AzureFileVolumeSource),
        proto(18, inside=2),
        describe("A share of Azure."),
    ] = None
    scale_io: Annotated[
        dict[str, Any] | None,
        shaped_like(ScaleIOVolumeSource),
        proto(25, inside=2),
        describe("A volume of ScaleIO."),
    ] = field(default=None, name="scaleIO")
    storageos: Annotated[
        dict[str, Any] | None,
        shaped_like(StorageOSVolumeSource),
        proto(27, inside=2),
        describe("A volume of StorageOS."),
    ] = None
    csi: Annotated[
        dict[str, Any] | None,
        shaped_like(CSIVolumeSource),
        proto(28, inside=2),
        describe("A volume of a CSI driver, made for this Pod."),
    ] = None


class SecretKeySelector(Wire):
    """One key of a Secret in the same namespace."""

    published_as = "core.v1.SecretKeySelector"
    atomic = True

    name: Annotated[str, proto(1, inside=1), describe("The name of the Secret.")] = ""
    key: Annotated[str, proto(2), describe("The key.")] = field(default_factory=str)
    optional: Annotated[bool | None, proto(3), describe("Whether it may be missing.")] = None


class ConfigMapKeySelector(SecretKeySelector):
    """One key of a config map in the same namespace."""

    published_as = "core.v1.ConfigMapKeySelector"


class SecretEnvSource(Wire):
    """All keys of a Secret in the same namespace."""

    published_as = "core.v1.SecretEnvSource"

    name: Annotated[str, proto(1, inside=1), describe("The name of the Secret.")] = ""
    optional: Annotated[bool | None, proto(2), describe("Whether it may be missing.")] = None


class ConfigMapEnvSource(SecretEnvSource):
    """All keys of a config map in the same namespace."""

    published_as = "core.v1.ConfigMapEnvSource"


class EnvVarSource(Wire):
    """Where the value of a variable comes from."""

    published_as = "core.v1.EnvVarSource"

    config_map_key_ref: Annotated[
        dict[str, Any] | None,
        shaped_like(ConfigMapKeySelector),
        proto(3),
        describe("A config map."),
    ] = None
    secret_key_ref: Annotated[
        dict[str, Any] | None, shaped_like(SecretKeySelector), proto(4), describe("A Secret.")
    ] = None


class EnvVar(Wire):
    """A variable in a container's environment."""

    published_as = "core.v1.EnvVar"

    name: Annotated[str, proto(1), describe("Its name.")] = field(default_factory=str)
    value: Annotated[str, proto(2), describe("Its value.")] = ""
    value_from: Annotated[
        dict[str, Any] | None,
        shaped_like(EnvVarSource),
        proto(3),
        describe("Where its value comes from."),
    ] = None


class EnvFromSource(Wire):
    """Many variables at once."""

    published_as = "core.v1.EnvFromSource"

    prefix: Annotated[str, proto(1), describe("What stands before each name.")] = ""
    config_map_ref: Annotated[
        dict[str, Any] | None, shaped_like(ConfigMapEnvSource), proto(2), describe("A config map.")
    ] = None
    secret_ref: Annotated[
        dict[str, Any] | None, shaped_like(SecretEnvSource), proto(3), describe("A Secret.")
    ] = None


class VolumeMount(Wire):
    """Where a container sees a volume."""

    published_as = "core.v1.VolumeMount"

    name: Annotated[str, proto(1), describe("The name of the volume.")] = field(default_factory=str)
    read_only: Annotated[bool, proto(2), describe("Whether it can only be read.")] = False
    mount_path: Annotated[str, proto(3), describe("The directory or file in the container.")] = (
        field(default_factory=str)
    )
    sub_path: Annotated[str, proto(4), describe("The part of the volume that is mounted.")] = ""


class Container(Wire):
    """One program of a Pod; what is not declared is kept as given."""

    published_as = "core.v1.Container"

    name: Annotated[str, proto(1), describe("The name of the container.")] = field(
        default_factory=str
    )
    image: Annotated[str, proto(2), describe("The image that it runs.")] = ""
    env: Annotated[
        tuple[Annotated[dict[str, Any], shaped_like(EnvVar)], ...],
        merge_key("name"),
        proto(7),
        describe("Variables in its environment."),
    ] = ()
    env_from: Annotated[
        tuple[Annotated[dict[str, Any], shaped_like(EnvFromSource)], ...],
        proto(19),
        describe("Variables taken from elsewhere."),
    ] = ()
    volume_mounts: Annotated[
        tuple[Annotated[dict[str, Any], shaped_like(VolumeMount)], ...],
        merge_key("mountPath"),
        proto(9),
        describe("Where it sees which volumes."),
    ] = ()


class EphemeralContainer(Wire):
    """A program that somebody adds to a Pod for a while; it is declared as far as a container."""

    published_as = "core.v1.EphemeralContainer"

    name: Annotated[str, proto(1, inside=1), describe("The name of the container.")] = field(
        default_factory=str
    )
    image: Annotated[str, proto(2, inside=1), describe("The image that it runs.")] = ""
    env: Annotated[
        tuple[Annotated[dict[str, Any], shaped_like(EnvVar)], ...],
        merge_key("name"),
        proto(7, inside=1),
        describe("Variables in its environment."),
    ] = ()
    env_from: Annotated[
        tuple[Annotated[dict[str, Any], shaped_like(EnvFromSource)], ...],
        proto(19, inside=1),
        describe("Variables taken from elsewhere."),
    ] = ()
    target_container_name: Annotated[
        str, proto(2), describe("The container whose processes it sees.")
    ] = ""
