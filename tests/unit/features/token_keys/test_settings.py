"""Settings of token keys."""

from typing import Any

import pytest

from orchid.features.token_keys.settings import stores_token_keys
from orchid.kernel.settings.checking import check
from orchid.kernel.settings.errors import BadSettings
from tests.settings import written

ETCD = {"etcd_servers": ["http://127.0.0.1:1"]}


@pytest.mark.parametrize(
    ("values", "is_stored"),
    [
        ({}, True),
        ({"token_keys": "files"}, False),
        ({"service_account_signing_key_file": "a"}, False),
        ({"service_account_key_file": ["a"]}, False),
        ({"service_account_key_file": ["a"], "token_keys": "stored"}, True),
        (ETCD, False),
        (ETCD | {"encryption_provider_config": "a"}, True),
    ],
)
def test_token_keys_are_stored_unless_files_or_clear_text_would_be(
    values: dict[str, Any], is_stored: bool
) -> None:
    """The setting itself comes first."""
    assert stores_token_keys(written(**values)) is is_stored


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"service_account_jwks_uri": "keys"}, "--service-account-jwks-uri: 'keys'"),
        (
            ETCD | {"token_keys": "stored"},
            "--token-keys: stored keys are in Secrets",
        ),
        (
            {"token_key_publish_time": "1m", "service_account_jwks_max_age": "2m"},
            "--token-key-publish-time: must not be below --service-account-jwks-max-age",
        ),
    ],
)
def test_settings_that_contradict_each_other_are_refused(values: dict[str, Any], text: str) -> None:
    """Each with the flag to change."""
    with pytest.raises(BadSettings) as refused:
        check(written(**values))

    assert text in str(refused.value)
