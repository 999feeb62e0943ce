"""How stores are opened: what is said about it at start."""

import sys

import pytest

from orchid.assembly import stores
from orchid.assembly.settings import read
from orchid.kernel.base.clock import SystemClock
from orchid.kernel.settings.checking import check
from orchid.kernel.settings.errors import BadSettings


async def test_etcd_without_its_packages_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The error names the extra that the store needs."""
    monkeypatch.setitem(sys.modules, "orchid.kernel.store.etcd.store", None)
    settings = check(read(None, {"etcd-servers": ["https://127.0.0.1:1"]}))

    with pytest.raises(BadSettings, match=r"pip install 'orchid-identity\[etcd\]'"):
        async with stores.opened_store(settings, SystemClock()):
            pass
