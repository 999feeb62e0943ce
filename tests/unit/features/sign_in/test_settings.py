"""Settings of sign-in."""

import pytest

from orchid.features.sign_in.settings import SignInSettings
from orchid.kernel.settings.checking import check
from orchid.kernel.settings.errors import BadSettings
from tests.settings import written

HEADERS = (
    "requestheader_allowed_names",
    "requestheader_username_headers",
    "requestheader_uid_headers",
    "requestheader_group_headers",
    "requestheader_extra_headers_prefix",
)


@pytest.mark.parametrize("name", HEADERS)
def test_headers_of_a_front_proxy_need_its_ca(name: str) -> None:
    """Without it, any client could send them."""
    flag = name.replace("_", "-")
    with pytest.raises(BadSettings, match=f"--{flag} needs --requestheader-client-ca-file"):
        check(written(**{name: ["x"]}))

    check(written(**{name: ["x"]}, requestheader_client_ca_file="proxy.crt"))


@pytest.mark.parametrize("name", ["authentication_config", "oidc_issuer_url", "oidc_client_id"])
def test_external_issuers_are_configured_by_a_file_or_by_flags(name: str) -> None:
    """Also by one flag of two that belong together, so that the other one is asked for."""
    assert written(**{name: "x"}).of(SignInSettings).has_outside_issuers
    assert not written().of(SignInSettings).has_outside_issuers
