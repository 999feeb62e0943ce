"""Settings of revocation lists."""

import pytest

from orchid.kernel.settings.checking import check
from orchid.kernel.settings.errors import BadSettings
from tests.settings import written


def test_records_stay_as_long_as_revocation_lists_need_them() -> None:
    """A week after the end of their certificate; less is refused."""
    check(written(issued_retention="168h"))
    with pytest.raises(BadSettings, match="--issued-retention: at least 168h"):
        check(written(issued_retention="167h59m"))
