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
    needed = limits.max_connections + OTHER_FILES
    available = raised_to(needed)
    if available >= needed:
        return limits
    connections = max(1, available - min(OTHER_FILES, available // 2))
    log.info(
        "listener.fewer_connections: %d in place of %d, because the hard limit of open files is %d",
        connections,
        limits.max_connections,
        available,
    )
    share = connections / limits.max_connections
    return msgspec.structs.replace(
        limits,
        max_connections=connections,
        max_unknown=max(1, int(limits.max_unknown * share)),
        max_unknown_per_address=max(1, int(limits.max_unknown_per_address * share)),
    )


def raised_to(needed: int) -> int:
    """Raise the open-file soft limit to `wanted` or the hard limit; return it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return needed
    most = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    except (OSError, ValueError):  # some systems have another limit beside this one
        return soft
    return most
