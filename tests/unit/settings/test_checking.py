"""Settings that depend on others: the address of the server, and who issues its tokens."""

import pytest

from orchid.settings.checking import check
from orchid.settings.errors import BadSettings
from orchid.settings.given import Given


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
    checked = check(Given(listen=listen, advertise_address=advertised))

    assert checked.url == address
    assert checked.issuers == (address,)
    assert checked.api_audiences == (address,)


def test_issuer_that_is_given_stays() -> None:
    """The first one is the audience too, unless that is given."""
    checked = check(Given(service_account_issuer=("https://new.example", "https://old.example")))

    assert checked.issuers == ("https://new.example", "https://old.example")
    assert checked.api_audiences == ("https://new.example",)


def test_records_stay_as_long_as_revocation_lists_need_them() -> None:
    """A week after the end of their certificate; less is refused."""
    assert check(Given(issued_retention="168h")).issued_retention == 7 * 86_400
    with pytest.raises(BadSettings, match="--issued-retention: at least 168h"):
        check(Given(issued_retention="167h59m"))
