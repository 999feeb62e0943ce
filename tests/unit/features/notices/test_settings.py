"""Settings of notices."""

import pytest

from orchid.kernel.settings.checking import check
from orchid.kernel.settings.errors import BadSettings
from tests.settings import written


def test_notices_are_sent_over_https() -> None:
    """They name people and keys."""
    check(written(notice_url="https://a.example"))
    with pytest.raises(BadSettings, match="--notice-url: 'http:"):
        check(written(notice_url="http://a.example"))


@pytest.mark.parametrize("name", ["notice_ca_file", "notice_token_file"])
def test_files_for_a_receiver_need_its_url(name: str) -> None:
    """Without it nobody would use them."""
    check(written(**{name: "a"}, notice_url="https://a.example"))
    with pytest.raises(BadSettings, match=f"--{name.replace('_', '-')} needs --notice-url"):
        check(written(**{name: "a"}))
