"""File descriptors: every connection needs one, and their number is limited.

`fitted` raises this process's soft limit to what the limits of the listener need. If the hard limit
does not allow that, it lowers the listener's limits instead and logs it: otherwise files and
outgoing connections would fail first. That is no warning, because those limits are not configured.
"""

import logging
import resource
from typing import Final

import msgspec

from orchid.kernel.http.listener_state import ConnectionLimits

log = logging.getLogger(__name__)

OTHER_FILES: Final = 500  # the store, the log, outgoing connections


def fitted(limits: ConnectionLimits) -> ConnectionLimits:
    """Limits for which the descriptors suffice."""
    wanted = limits.max_connections + OTHER_FILES
    there = raised_to(wanted)
    if there >= wanted:
        return limits
    connections = max(1, there - min(OTHER_FILES, there // 2))
    log.info(
        "listener.fewer_connections: %d in place of %d, because the hard limit of open files is %d",
        connections,
        limits.max_connections,
        there,
    )
    share = connections / limits.max_connections
    return msgspec.structs.replace(
        limits,
        max_connections=connections,
        max_unknown=max(1, int(limits.max_unknown * share)),
        max_unknown_per_address=max(1, int(limits.max_unknown_per_address * share)),
    )


def raised_to(wanted: int) -> int:
    """Raise the open-file soft limit to `wanted` or the hard limit; return it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return wanted
    most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    except (OSError, ValueError):  # some systems have another limit beside this one
        return soft
    return most
