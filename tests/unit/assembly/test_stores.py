"""How stores are opened: what is said about it at start."""

import logging
import sys

import pytest

from orchid.assembly import stores
from orchid.settings.checking import check
from orchid.settings.errors import BadSettings
from orchid.settings.reading import read
from orchid.store.etcd.store import EtcdStore
from orchid.store.interface import StoreUnavailable


@pytest.mark.parametrize(
    ("server", "told"),
    [
        ("127.0.0.1:1", ["127.0.0.1:1"]),
        ("http://127.0.0.1:1", ["127.0.0.1:1"]),
        ("https://127.0.0.1:1", []),
    ],
)
async def test_etcd_without_tls_is_warned_of(
    server: str, told: list[str], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An endpoint without a scheme is plain text; whoever starts the server hears of it."""
    caplog.set_level(logging.WARNING)

    async def nobody_there(*_: object, **__: object) -> None:
        raise StoreUnavailable("nobody there")

    monkeypatch.setattr(EtcdStore, "open", nobody_there)
    settings = check(read(None, {"etcd-servers": [server]}))

    with pytest.raises(BadSettings):
        async with stores.opened_store(settings):
            pass

    warned = [vars(record) for record in caplog.records if record.message == "store.plaintext"]
    assert [found["etcd"] for found in warned] == told


async def test_etcd_without_its_packages_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The extra is named by whoever needs it."""
    monkeypatch.setitem(sys.modules, "orchid.store.etcd.store", None)
    settings = check(read(None, {"etcd-servers": ["https://127.0.0.1:1"]}))

    with pytest.raises(BadSettings, match=r"pip install 'orchid-identity\[etcd\]'"):
        async with stores.opened_store(settings):
            pass
