"""Volumes and containers of a Pod as a table: the fields that name Secrets, config maps, tokens.

These fields matter to identity: they decide which Secrets, config maps, tokens and trust bundles a
node may read for the Pod. They are validated, published in OpenAPI and encoded as protobuf; all
other fields are stored as sent and exist in JSON only. No value of these types is ever created, so
each type is a row of data.

Some fields are in a protobuf message of their own that JSON does not show; `inside` is the number
of that message.
"""

from typing import Annotated, Any

import msgspec

from orchid.kernel.wire.references import LocalObjectReference
from orchid.kernel.wire.struct import Wire, at_most, describe, merge_key, proto, shaped_like

MOST_SOURCES = 1000  # of one volume

Field = tuple[str, Any, Any]  # name, annotated type, default


def text(name: str, number: int, meaning: str, *, always: bool = False, inside: int = 0) -> Field:
    """A string; `always` is written even when it is empty."""
    default = msgspec.field(default_factory=str) if always else ""
    return name, Annotated[str, proto(number, inside=inside), describe(meaning)], default


def optional(name: str, type_: type, number: int, meaning: str, encoding: str = "") -> Field:
    """A number, text or boolean that may be left out."""
    return name, Annotated[type_ | None, proto(number, encoding), describe(meaning)], None


def part(
    name: str, number: int, type_: type, meaning: str, *, inside: int = 0, json: str | None = None
) -> Field:
    """An object that keeps unknown fields."""
    shape = (shaped_like(type_), proto(number, inside=inside), describe(meaning))
    default = msgspec.field(default=None, name=json) if json else None
    return name, Annotated[dict[str, Any] | None, *shape], default


def parts(
    name: str, number: int, type_: type, meaning: str, *rules: object, inside: int = 0
) -> Field:
    """A list of objects that keep unknown fields."""
    item = Annotated[dict[str, Any], shaped_like(type_)]
    words = (*rules, proto(number, inside=inside), describe(meaning))
    return name, Annotated[tuple[item, ...], *words], ()


def message(name: str, meaning: str, *fields: Field, atomic: bool = False) -> type[Wire]:
    """A type with these fields, published as core.v1.NAME."""
    named = {"__doc__": meaning, "published_as": f"core.v1.{name}", "atomic": atomic}
    struct = msgspec.defstruct(
        name, fields, bases=(Wire,), namespace=named, module=__name__, frozen=True
    )
    assert issubclass(struct, Wire)
    return struct


def mode(number: int, meaning: str = "The file mode.") -> Field:
    return optional("default_mode", int, number, meaning, "int32")


def may_be_missing(number: int) -> Field:
    return optional("optional", bool, number, "Whether it may be missing.")


# --- files from other objects ---------------------------------------------------------------------

KEY_TO_PATH = message(
    "KeyToPath",
    "A key, and the file that it becomes.",
    text("key", 1, "The key.", always=True),
    text("path", 2, "The file, relative to the mount.", always=True),
    optional("mode", int, 3, "The file mode.", "int32"),
)
NAME = text("name", 1, "The name of the object.", inside=1)
ITEMS = parts("items", 2, KEY_TO_PATH, "Which keys become which files; by default all.")

CONFIG_MAP_VOLUME = message(
    "ConfigMapVolumeSource", "A config map as files.", NAME, ITEMS, mode(3), may_be_missing(4)
)
CONFIG_MAP_PROJECTION = message(
    "ConfigMapProjection", "A config map as files, among others.", NAME, ITEMS, may_be_missing(4)
)
SECRET_PROJECTION = message(
    "SecretProjection", "A Secret as files, among others.", NAME, ITEMS, may_be_missing(4)
)
SECRET_VOLUME = message(
    "SecretVolumeSource",
    "A Secret as files.",
    text("secret_name", 1, "The name of the Secret."),
    ITEMS,
    mode(3),
    may_be_missing(4),
)
TOKEN_PROJECTION = message(
    "ServiceAccountTokenProjection",
    "A token of the Pod's account as a file.",
    text("audience", 1, "The audience; by default this server."),
    optional("expiration_seconds", int, 2, "The lifetime."),
    text("path", 3, "The file.", always=True),
)
TRUST_BUNDLE_PROJECTION = message(
    "ClusterTrustBundleProjection",
    "Trust anchors as a file.",
    optional("name", str, 1, "One bundle, by name."),
    optional("signer_name", str, 2, "All bundles of a signer."),
    text("path", 4, "The file.", always=True),
    optional("optional", bool, 5, "Whether there may be none."),
)
POD_CERTIFICATE_PROJECTION = message(
    "PodCertificateProjection",
    "A certificate of the Pod as files, renewed by its node.",
    text("signer_name", 1, "The signer that issues it.", always=True),
    text("key_type", 2, "The type of the key that the node creates.", always=True),
    optional("max_expiration_seconds", int, 3, "The longest life that is accepted.", "int32"),
    text("credential_bundle_path", 4, "The file for key and certificate chain."),
    text("key_path", 5, "The file for the key alone."),
    text("certificate_chain_path", 6, "The file for the certificate chain alone."),
    (
        "user_annotations",
        Annotated[dict[str, str], proto(7), describe("Hints for the signer.")],
        msgspec.field(default_factory=dict),
    ),
)
FIELD_SELECTOR = message(
    "ObjectFieldSelector",
    "A field of the Pod.",
    text("api_version", 1, "The version in which it has this path."),
    text("field_path", 2, "The path.", always=True),
    atomic=True,
)
DOWNWARD_FILE = message(
    "DownwardAPIVolumeFile",
    "A field of the Pod as a file.",
    text("path", 1, "The file.", always=True),
    part("field_ref", 2, FIELD_SELECTOR, "The field."),
    optional("mode", int, 4, "The file mode.", "int32"),
)
DOWNWARD_PROJECTION = message(
    "DownwardAPIProjection",
    "Fields of the Pod as files, among others.",
    parts("items", 1, DOWNWARD_FILE, "The files."),
)
VOLUME_PROJECTION = message(
    "VolumeProjection",
    "One source of a volume that has several.",
    part("secret", 1, SECRET_PROJECTION, "A Secret."),
    part("config_map", 3, CONFIG_MAP_PROJECTION, "A config map."),
    part("service_account_token", 4, TOKEN_PROJECTION, "A token of the Pod's account."),
    part("downward_api", 2, DOWNWARD_PROJECTION, "Fields of the Pod itself.", json="downwardAPI"),
    part("cluster_trust_bundle", 5, TRUST_BUNDLE_PROJECTION, "Trust anchors."),
    part("pod_certificate", 6, POD_CERTIFICATE_PROJECTION, "A certificate of the Pod."),
)
PROJECTED_VOLUME = message(
    "ProjectedVolumeSource",
    "Several sources in one volume.",
    parts("sources", 1, VOLUME_PROJECTION, "The sources.", at_most(MOST_SOURCES)),
    mode(2),
)

# --- volumes --------------------------------------------------------------------------------------

# Storage that is reached with a Secret: name, number, message, number of its secretRef, meaning.
STORAGE = (
    ("iscsi", 8, "ISCSIVolumeSource", 10, "A disk behind iSCSI."),
    ("rbd", 11, "RBDVolumeSource", 7, "A block device of Ceph."),
    ("flex_volume", 12, "FlexVolumeSource", 3, "A volume of some driver."),
    ("cinder", 13, "CinderVolumeSource", 4, "A volume of Cinder."),
    ("cephfs", 14, "CephFSVolumeSource", 5, "A directory of Ceph."),
    ("scale_io", 25, "ScaleIOVolumeSource", 3, "A volume of ScaleIO."),
    ("storageos", 27, "StorageOSVolumeSource", 5, "A volume of StorageOS."),
)
IRREGULAR = {"scale_io": "scaleIO"}  # JSON names
CREDENTIALS = "The Secret with the credentials of the storage."
CSI_VOLUME = message(
    "CSIVolumeSource",
    "A volume of a CSI driver, created for this Pod.",
    part("node_publish_secret_ref", 5, LocalObjectReference, CREDENTIALS),
)
AZURE_FILE_VOLUME = message(
    "AzureFileVolumeSource", "A share of Azure.", text("secret_name", 1, CREDENTIALS, always=True)
)


def storage(name: str, number: int, published: str, secret: int, meaning: str) -> Field:
    source = message(
        published, meaning, part("secret_ref", secret, LocalObjectReference, CREDENTIALS)
    )
    return part(name, number, source, meaning, inside=2, json=IRREGULAR.get(name))


Volume = message(
    "Volume",
    "A volume; fields of sources that are not listed are stored as sent.",
    text("name", 1, "The name by which containers mount it.", always=True),
    part("secret", 6, SECRET_VOLUME, "A Secret.", inside=2),
    part("config_map", 19, CONFIG_MAP_VOLUME, "A config map.", inside=2),
    part("projected", 26, PROJECTED_VOLUME, "Several sources.", inside=2),
    part("azure_file", 18, AZURE_FILE_VOLUME, "A share of Azure.", inside=2),
    part("csi", 28, CSI_VOLUME, "A volume of a CSI driver, created for this Pod.", inside=2),
    *(storage(*row) for row in STORAGE),
)

# --- containers -----------------------------------------------------------------------------------


def key_selector(name: str, meaning: str) -> type[Wire]:
    fields = (NAME, text("key", 2, "The key.", always=True), may_be_missing(3))
    return message(name, meaning, *fields, atomic=True)


SECRET_KEY = key_selector("SecretKeySelector", "A key of a Secret in the same namespace.")
CONFIG_KEY = key_selector("ConfigMapKeySelector", "A key of a config map in the same namespace.")
SECRET_KEYS = message("SecretEnvSource", "All keys of a Secret.", NAME, may_be_missing(2))
CONFIG_KEYS = message("ConfigMapEnvSource", "All keys of a config map.", NAME, may_be_missing(2))
ENV_SOURCE = message(
    "EnvVarSource",
    "The source of a variable's value.",
    part("config_map_key_ref", 3, CONFIG_KEY, "A config map."),
    part("secret_key_ref", 4, SECRET_KEY, "A Secret."),
)
ENV = message(
    "EnvVar",
    "A variable in a container's environment.",
    text("name", 1, "The name.", always=True),
    text("value", 2, "The value."),
    part("value_from", 3, ENV_SOURCE, "The source of the value."),
)
ENV_FROM = message(
    "EnvFromSource",
    "Variables from all keys of an object.",
    text("prefix", 1, "The prefix of each name."),
    part("config_map_ref", 2, CONFIG_KEYS, "A config map."),
    part("secret_ref", 3, SECRET_KEYS, "A Secret."),
)
MOUNT = message(
    "VolumeMount",
    "The mount of a volume in a container.",
    text("name", 1, "The name of the volume.", always=True),
    ("read_only", Annotated[bool, proto(2), describe("Whether it is read-only.")], False),
    text("mount_path", 3, "The directory or file in the container.", always=True),
    text("sub_path", 4, "The part of the volume that is mounted."),
)


def container(*, inside: int = 0) -> tuple[Field, ...]:
    """Fields that all types of containers share."""
    return (
        text("name", 1, "The name of the container.", always=True, inside=inside),
        text("image", 2, "The image that it runs.", inside=inside),
        parts("env", 7, ENV, "Variables of its environment.", merge_key("name"), inside=inside),
        parts("env_from", 19, ENV_FROM, "Variables from other objects.", inside=inside),
    )


Container = message(
    "Container",
    "A program of a Pod; fields that are not listed are stored as sent.",
    *container(),
    parts("volume_mounts", 9, MOUNT, "The mounted volumes.", merge_key("mountPath")),
)
EphemeralContainer = message(
    "EphemeralContainer",
    "A program that is added to a running Pod.",
    *container(inside=1),
    text("target_container_name", 2, "The container whose processes it sees."),
)
