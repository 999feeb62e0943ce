"""The listeners of a server: HTTPS for all of it, and plain HTTP for features that need it."""

import logging
from collections.abc import Callable
from pathlib import Path

from orchid.features.sign_in.settings import SignInSettings
from orchid.kernel.base import process_memory
from orchid.kernel.credentials.refusals import Refusal
from orchid.kernel.engine.cache.feed import Feed
from orchid.kernel.feature import PlainHttp
from orchid.kernel.http.descriptors import fitted
from orchid.kernel.http.listener import ConnectionLimits, Listener
from orchid.kernel.http.tls.files import TlsFiles
from orchid.kernel.server.chain import Chain
from orchid.kernel.server.failures import TIMEOUT, failed
from orchid.kernel.settings.checking import Settings
from orchid.kernel.settings.data_directory import DataDirectory
from orchid.kernel.settings.errors import BadSettings

log = logging.getLogger(__name__)


def api_listener(
    settings: Settings,
    files: DataDirectory,
    chain: Chain,
    feed: Feed,
    monotonic: Callable[[], float],
) -> Listener:
    """The HTTPS listener; it listens once it is started."""
    sign_in = settings.given.of(SignInSettings)
    authorities = [Path(sign_in.client_ca_file) if sign_in.client_ca_file else files.ca_certificate]
    if sign_in.requestheader_client_ca_file:
        authorities.append(Path(sign_in.requestheader_client_ca_file))
    try:
        tls = TlsFiles(files.serving_certificate, files.serving_key, authorities)
    except Refusal as problem:
        raise BadSettings(str(problem)) from None
    return Listener(
        chain,
        timeout_response=TIMEOUT,
        failure=failed,
        monotonic=monotonic,
        limits=fitted(ConnectionLimits(request_timeout=settings.request_timeout)),
        tls=tls,
        recognize=chain.recognize,
        refresh=feed.fresh if settings.given.etcd_servers else None,
        after_rush=process_memory.give_back,
    )


async def plain_listener(
    settings: Settings, plain: PlainHttp, monotonic: Callable[[], float]
) -> Listener:
    """The listener without TLS of a feature, started."""
    listener = Listener(
        plain.handler,
        timeout_response=TIMEOUT,
        failure=failed,
        monotonic=monotonic,
        limits=fitted(ConnectionLimits(request_timeout=settings.request_timeout)),
    )
    try:
        await listener.start(*plain.address.parts)
    except OSError as problem:
        why = problem.strerror or problem
        raise BadSettings(f"--{plain.setting}: {plain.address}: {why}") from None
    log.info(plain.event, extra={"addresses": listener.addresses})
    return listener
