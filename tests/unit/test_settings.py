"""Settings that depend on others: the address of the server, and who issues its tokens."""

from pathlib import Path

import pytest

from orchid.settings import BadSettings, Given, check, read


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


def test_misspelt_setting_names_the_file_and_the_one_that_was_meant(tmp_path: Path) -> None:
    """Whoever reads the message can mend the line."""
    path = tmp_path / "orchid.toml"
    path.write_text('lisen = "127.0.0.1:1"\n')

    with pytest.raises(BadSettings, match="there is no setting 'lisen'; did you mean listen") as no:
        read(path, {})

    assert str(path) in str(no.value)
