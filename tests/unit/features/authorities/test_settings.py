"""Settings of authorities: the files of platform signers, and the HSM."""

from typing import Any

import pytest

from orchid.features.authorities.settings import stores_authority
from orchid.kernel.settings.checking import check
from orchid.kernel.settings.errors import BadSettings
from tests.settings import written

SHARED = {"cluster_signing_cert_file": "a", "cluster_signing_key_file": "b"}
CLIENT = {"cluster_signing_client_cert_file": "c", "cluster_signing_client_key_file": "d"}
ETCD = {"etcd_servers": ["http://127.0.0.1:1"]}


@pytest.mark.parametrize(
    ("values", "text"),
    [
        (
            {"cluster_signing_cert_file": "a"},
            "--cluster-signing-cert-file and --cluster-signing-key-file go together",
        ),
        (
            {"cluster_signing_client_cert_file": "a"},
            "--cluster-signing-client-cert-file and --cluster-signing-client-key-file go together",
        ),
        (
            {"cluster_signing_node_serving_key_file": "a"},
            "--cluster-signing-node-serving-cert-file and "
            "--cluster-signing-node-serving-key-file go together",
        ),
        (SHARED | CLIENT, "flags at the same time"),
        (
            {"pkcs11_module": "a", "pkcs11_pin_file": "b"},
            "--pkcs11-module and --pkcs11-token go together",
        ),
        (
            {"pkcs11_module": "a", "pkcs11_token": "b"},
            "--pkcs11-module and --pkcs11-pin-file go together",
        ),
    ],
)
def test_files_that_belong_together_are_given_together(values: dict[str, Any], text: str) -> None:
    """A certificate and its key; one authority for all signers, or one for each."""
    with pytest.raises(BadSettings) as refused:
        check(written(**values))

    assert str(refused.value).endswith(text)


@pytest.mark.parametrize(
    ("values", "is_stored"),
    [
        ({}, True),
        (SHARED, False),
        (CLIENT, False),
        (ETCD, False),
        (ETCD | {"encryption_provider_config": "a"}, True),
    ],
)
def test_the_platforms_authority_is_stored_unless_files_or_clear_text_would_be(
    values: dict[str, Any], is_stored: bool
) -> None:
    """As token keys are."""
    assert stores_authority(written(**values)) is is_stored
