"""The list of custom resources, which is empty.

Before kubectl creates an object of a kind that cannot be patched (every review), it looks for it
among the custom resources, and gives up if there is no such list. Discovery does not have the
group: there is nothing else in it.
"""

from typing import Final

from orchid.kernel.engine.request import Target
from orchid.kernel.http.messages import Response
from orchid.kernel.server.pages.site import raw_json
from orchid.kernel.server.request_state import RequestState
from orchid.kernel.wire.naming import CUSTOM_RESOURCES

PATH: Final = f"/apis/{CUSTOM_RESOURCES}/v1/customresourcedefinitions"
_EMPTY: Final = (
    b'{"kind":"CustomResourceDefinitionList","apiVersion":"%b/v1",'
    b'"metadata":{"resourceVersion":""},"items":[]}'
) % CUSTOM_RESOURCES.encode()


def is_listed(target: Target) -> bool:
    return target.verb == "list" and target.path == PATH


def empty_list(state: RequestState) -> Response:
    return raw_json(state, _EMPTY)
