"""Settings that depend on others: the address of the server, and who issues its tokens."""

from typing import Any

import pytest

from orchid.kernel.settings.checking import check
from orchid.kernel.settings.errors import BadSettings
from tests.settings import written


@pytest.mark.parametrize(
    ("listen", "advertised", "address"),
    [
        ("127.0.0.1:6443", "", "https://127.0.0.1:6443"),
        ("0.0.0.0:6443", "", "https://127.0.0.1:6443"),
        ("0.0.0.0:6443", "id.example.org", "https://id.example.org:6443"),
        ("[::]:7443", "", "https://127.0.0.1:7443"),
        ("[::1]:7443", "", "https://[::1]:7443"),
    ],
)
def test_server_issues_tokens_under_its_own_address(
    listen: str, advertised: str, address: str
) -> None:
    """An address that nobody can reach, like 0.0.0.0, would be an issuer that nobody can verify."""
    checked = check(written(listen=listen, advertise_address=advertised))

    assert checked.url == address
    assert checked.issuers == (address,)
    assert checked.api_audiences == (address,)


def test_issuer_that_is_given_stays() -> None:
    """The first one is the audience too, unless that is given."""
    checked = check(written(service_account_issuer=("https://new.example", "https://old.example")))

    assert checked.issuers == ("https://new.example", "https://old.example")
    assert checked.api_audiences == ("https://new.example",)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"service_account_issuer": ("not a url",)}, "--service-account-issuer: 'not a url'"),
        ({"service_account_issuer": ("https://a.example", "b:c")}, "--service-account-issuer"),
        ({"service_account_issuer": ("https://",)}, "--service-account-issuer: 'https://'"),
        ({"service_account_issuer": ("",)}, "--service-account-issuer: ''"),
        ({"advertise_address": "two words"}, "--advertise-address: 'two words'"),
        ({"workers": 0}, "--workers: at least 1"),
        ({"max_requests_inflight": -1}, "--max-requests-inflight: at least 0"),
        ({"max_mutating_requests_inflight": -1}, "--max-mutating-requests-inflight: at least 0"),
        ({"min_request_timeout": -1}, "--min-request-timeout: at least 0"),
        ({"etcd_certfile": "a"}, "--etcd-certfile and --etcd-keyfile go together"),
        ({"audit_log_path": "a"}, "--audit-log-path and --audit-policy-file go together"),
    ],
)
def test_a_value_that_cannot_be_used_is_refused_with_its_flag(
    given: dict[str, Any], text: str
) -> None:
    """Before a file is read, or a server announced."""
    with pytest.raises(BadSettings) as refused:
        check(written(**given))

    assert text in str(refused.value)


@pytest.mark.parametrize("issuer", ["https://id.example.org/x", "urn://orchid", "orchid"])
def test_an_issuer_is_a_url_or_a_word(issuer: str) -> None:
    """A word without a colon, as in Kubernetes."""
    assert check(written(service_account_issuer=(issuer,))).issuers == (issuer,)
