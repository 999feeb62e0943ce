"""Health: /healthz, /livez and /readyz, each a list of checks by name.

`?verbose` shows every check, `?exclude=name` leaves one out, `/livez/ping` asks for one
alone. A check that fails says why in the log and to whoever asks for it alone, not in the
summary.
"""

from collections.abc import Callable, Mapping

from orchid.server.exchange import Response
from orchid.server.respond import TEXT, Exchange, text

Check = Callable[[], str | None]
"""Gives None when all is well, else what is wrong."""

_PLAIN = b"Content-Type: text/plain; charset=utf-8\r\n"


class Health:
    """The three endpoints and what each looks at."""

    def __init__(self, endpoints: Mapping[str, Mapping[str, Check]]) -> None:
        self._endpoints = endpoints

    def answer(self, exchange: Exchange, path: str) -> Response | None:
        """The answer for a path below an endpoint; None if there is no such path."""
        endpoint, slash, name = path[1:].partition("/")
        checks = self._endpoints.get(endpoint)
        if checks is None:
            return None
        if not slash:
            return self._summary(exchange, endpoint, checks)
        check = checks.get(name)
        return None if check is None else self._single(exchange, check)

    def _single(self, exchange: Exchange, check: Check) -> Response:
        problem = check()
        if problem is None:
            return text(exchange, 200, "ok", content_type=_PLAIN)
        return text(exchange, 500, f"internal server error: {problem}\n")

    def _summary(self, exchange: Exchange, endpoint: str, checks: Mapping[str, Check]) -> Response:
        query = exchange.query
        if not query and all(check() is None for check in checks.values()):
            return text(exchange, 200, "ok")
        excluded = query.get("exclude", [])
        lines, failed = [], False
        for name, check in checks.items():
            if name in excluded:
                lines.append(f"[+]{name} excluded: ok\n")
            elif check() is None:
                lines.append(f"[+]{name} ok\n")
            else:
                failed = True
                lines.append(f"[-]{name} failed: reason withheld\n")
        unknown = [f'"{name}"' for name in excluded if name not in checks]
        if unknown:
            listed = ",".join(unknown)
            lines.append(f"warn: some health checks cannot be excluded: no matches for {listed}\n")
        if failed:
            lines.append(f"{endpoint} check failed\n")
            return text(exchange, 500, "".join(lines), content_type=TEXT)
        if "verbose" not in query:
            return text(exchange, 200, "ok")
        lines.append(f"{endpoint} check passed\n")
        return text(exchange, 200, "".join(lines))
