"""Content of a request that is not in the certificate that would be signed."""

import pytest

from orchid.kernel.credentials.x509 import der, names
from orchid.kernel.credentials.x509.requested_certificate import hidden_parts
from orchid.kernel.credentials.x509.signing_request import parse
from tests.unit.kernel.credentials import unusual
from tests.unit.kernel.credentials.samples import CLIENT_USAGES, as_pem, name, raw_request, utf8

USER = utf8(names.COMMON_NAME, "jane")
GROUP, OTHER = utf8(names.ORGANIZATION, "dev"), utf8(names.ORGANIZATION, "ops")


@pytest.mark.parametrize(
    "subject", [name((GROUP,), (USER,)), name((GROUP, OTHER), (USER,))], ids=["one", "several"]
)
def test_nothing_is_hidden_in_a_usual_subject(subject: bytes) -> None:
    """Several groups may share one relative name, as the reference writes them."""
    assert hidden_parts(parse(as_pem(raw_request(subject))), CLIENT_USAGES) == ()


def test_different_attributes_in_one_relative_name_are_hidden() -> None:
    """Each would be signed, but in relative names of their own: programs differ in reading them."""
    found = hidden_parts(parse(as_pem(raw_request(name((GROUP, USER))))), CLIENT_USAGES)

    assert found == ("the subject has different attributes in one relative name",)


@pytest.mark.parametrize(
    "extension",
    [
        unusual.extension(unusual.TLS_FEATURE, unusual.sequence(der.encode_integer(7))),
        unusual.extension(
            unusual.ALTERNATIVE_NAMES, unusual.sequence(unusual.GENERAL_NAMES["directory name"])
        ),
        unusual.extension(unusual.ALTERNATIVE_NAMES, unusual.sequence(unusual.X400_ADDRESS)),
    ],
    ids=["TLS feature 7", "directory name", "x400Address"],
)
def test_what_the_library_cannot_read_is_hidden(extension: bytes) -> None:
    """No exception of the library leaves the comparison: a review of the request would be 500."""
    request = parse(as_pem(raw_request(name((USER,)), extension)))

    assert hidden_parts(request, CLIENT_USAGES)
