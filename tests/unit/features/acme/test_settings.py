"""Settings of ACME."""

import pytest

from orchid.kernel.settings.checking import check
from orchid.kernel.settings.errors import BadSettings
from tests.settings import written


def test_clients_need_https() -> None:
    """As RFC 8555, section 6.1 says."""
    check(written(acme_url="https://a.example"))
    with pytest.raises(BadSettings, match="--acme-url: ACME clients need https"):
        check(written(acme_url="http://a.example"))
