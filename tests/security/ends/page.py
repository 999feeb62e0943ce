"""The table of ends as docs/revocation.md shows it."""

from tests.security.ends.table import CREDENTIALS, ENDED, ENDS, PATHS, Credential

BEGIN, STOP = "<!-- the table of ends -->", "<!-- end of the table -->"


def shown() -> str:
    """The text between the markers of the page."""
    lines = ["| Credential | Used for | Ended by | Not ended by |", "|---|---|---|---|"]
    lines += [_row(one) for one in CREDENTIALS]
    lines += ["", "| Used for | After the end | No other credential, because |", "|---|---|---|"]
    lines += [f"| {one.name} | {one.soon} | {one.others} |" for one in PATHS]
    lines += ["", "| End | Does not occur for others, because |", "|---|---|"]
    lines += [f"| {one.name} | {one.others} |" for one in ENDS]
    return "\n".join(lines)


def _row(one: Credential) -> str:
    used = ", ".join(path.name for path in one.paths)
    ended = ", ".join(end.name for end, how in one.ends.items() if how == ENDED)
    spared = [f"{end.name}: {why}" for end, why in one.ends.items() if why != ENDED]
    spared += [f"{end.name}, {path.name}: {why}" for (end, path), why in one.spared.items()]
    return f"| {one.name} | {used} | {ended} | {'; '.join(spared)} |"
