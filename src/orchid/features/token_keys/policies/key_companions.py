"""Objects that are stored in one commit with a new SigningKey.

The Secret with its private key is owned by the key and deleted with it; the ConfigMap with its
first revocation list stays. material.py creates what is in them.
"""

from collections.abc import Callable, Mapping
from typing import Any

from orchid.features.objects.kinds.config_map import ConfigMap
from orchid.features.objects.kinds.secret import Secret
from orchid.features.token_keys.kinds.signing_key import SigningKey
from orchid.features.token_keys.policies.authority_material import CERTIFICATE, FirstList
from orchid.kernel.credentials.x509 import stored_list
from orchid.kernel.engine.cache.feed import Feed
from orchid.kernel.engine.kind import Kind
from orchid.kernel.wire.meta import Object, ObjectMeta, OwnerReference
from orchid.kernel.wire.naming import Naming
from orchid.kernel.wire.references import owner_reference
from orchid.kernel.wire.text import timestamp


def private_key_secret(
    naming: Naming, kind: Kind[Any], key: SigningKey, data: Mapping[str, bytes], uid: str
) -> Secret:
    """The Secret with the private key of a SigningKey; it is deleted with its owner."""
    return Secret(
        kind="Secret",
        api_version="v1",
        metadata=ObjectMeta(
            name=key.secret_name,
            namespace=naming.system_namespace,
            uid=uid,
            creation_timestamp=key.metadata.creation_timestamp,
            annotations={naming.description_annotation: f"Private key of SigningKey {key.name}"},
            owner_references=(owner_of(kind, key),),
        ),
        type=naming.own("tls") if CERTIFICATE in data else "Opaque",
        data=dict(data),
    )


def owner_of(kind: Kind[Any], owner: Object) -> OwnerReference:
    return owner_reference(owner, kind.api_version)


def first_list_map(
    feed: Feed, naming: Naming, key: SigningKey, first: FirstList, new_uid: Callable[[], str]
) -> list[Object]:
    """The ConfigMap of a key's first list; none if an earlier key of that name left one."""
    home, name = naming.system_namespace, key.status.revocation_list
    maps = feed.of(ConfigMap)
    if maps.get(home, stored_list.head_name(name)) is not None:
        return []  # the publisher replaces it
    edition = first.edition
    head = ConfigMap(
        kind=maps.kind.name,
        api_version=maps.kind.api_version,
        metadata=ObjectMeta(
            name=stored_list.head_name(name),
            namespace=home,
            uid=new_uid(),
            creation_timestamp=key.metadata.creation_timestamp,
        ),
        data=stored_list.head_data(edition.number, timestamp(edition.next_update), 1),
        binary_data={stored_list.DATA: first.encoded},
    )
    return [head]
