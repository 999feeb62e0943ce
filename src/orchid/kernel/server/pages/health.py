"""Health: /healthz, /livez and /readyz, each a list of checks by name.

`?verbose` shows every check, `?exclude=name` omits one, `/livez/ping` runs one alone. The reason of
a failing check is in the log and in the response of that check, not in the summary.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial

from orchid.kernel.http.messages import Response
from orchid.kernel.server.request_state import RequestState
from orchid.kernel.server.respond import PLAIN, TEXT, head, text

Check = Callable[[], str | None] | None
"""Returns None if healthy, else the problem; None if the request itself is the check."""

Page = Callable[[RequestState], Response]


class Health:
    """The three endpoints and their checks."""

    def __init__(self, endpoints: Mapping[str, Mapping[str, Check]]) -> None:
        self._endpoints = endpoints

    def pages(self) -> dict[str, Page]:
        """All paths: one per endpoint, and one below it for each of its checks."""
        served: dict[str, Page] = {}
        for endpoint, checks in self._endpoints.items():
            asked = [(name, check) for name, check in checks.items() if check is not None]
            served[f"/{endpoint}"] = partial(self._summary, endpoint, checks, asked)
            for name, check in checks.items():
                served[f"/{endpoint}/{name}"] = partial(self._single, check)
        return served

    def _single(self, check: Check, state: RequestState) -> Response:
        problem = check() if check is not None else None
        if problem is None:
            return text(state, 200, "ok", content_type=PLAIN)
        return text(state, 500, f"internal server error: {problem}\n")

    def _summary(
        self,
        endpoint: str,
        checks: Mapping[str, Check],
        asked: Sequence[tuple[str, Callable[[], str | None]]],
        state: RequestState,
    ) -> Response:
        query = state.query
        excluded = query.get("exclude", ())
        failed = []
        for name, check in asked:
            if name not in excluded and check() is not None:
                failed.append(name)
        if not failed and "verbose" not in query:
            return Response(200, head(state, TEXT), b"ok")  # as nearly always
        lines = [_line(name, failed, excluded) for name in checks]
        if not checks.keys() >= set(excluded):
            listed = ",".join(f'"{name}"' for name in excluded if name not in checks)
            lines.append(f"warn: some health checks cannot be excluded: no matches for {listed}\n")
        if failed:
            lines.append(f"{endpoint} check failed\n")
            return text(state, 500, "".join(lines), content_type=TEXT)
        lines.append(f"{endpoint} check passed\n")
        return text(state, 200, "".join(lines))


def _line(name: str, failed: Collection[str], excluded: Collection[str]) -> str:
    if name in failed:
        return f"[-]{name} failed: reason withheld\n"
    return f"[+]{name} excluded: ok\n" if name in excluded else f"[+]{name} ok\n"
