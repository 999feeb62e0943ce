"""Reading settings: a TOML file and the flags of a command; flags win.

A misspelt key or a value of the wrong type raises `BadSettings`, with a message for the user.
checking.py validates the values.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from orchid.kernel.settings.errors import BadSettings
from orchid.kernel.settings.given import Given
from orchid.kernel.wire.text import without_type_names


def read(config: Path | None, flags: Mapping[str, Any]) -> Given:
    """Merge the file and the flags; flags win."""
    written = {**written_in(config), **flags}
    for field in msgspec.structs.fields(Given):
        # A list with one element may be written without brackets.
        if isinstance(field.default, tuple) and isinstance(written.get(field.encode_name), str):
            written[field.encode_name] = [text] if (text := written[field.encode_name]) else []
    try:
        return msgspec.convert(written, Given, strict=False)
    except msgspec.ValidationError as problem:
        raise BadSettings(_sentence(str(problem))) from None


def written_in(path: Path | None) -> dict[str, Any]:
    """The settings in a file, as written; none without a file."""
    if path is None:
        return {}
    import difflib  # noqa: PLC0415 -- only needed with a file
    import tomllib  # noqa: PLC0415 -- only needed with a file

    try:
        with path.open("rb") as file:
            written = tomllib.load(file)
    except OSError as problem:
        raise BadSettings(f"--config: {problem.strerror}: {path}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as problem:
        raise BadSettings(f"--config: {path} is not TOML: {problem}") from None
    known = [field.encode_name for field in msgspec.structs.fields(Given)]
    for name in written:
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            hint = f"; did you mean {close[0]}?" if close else ""
            raise BadSettings(f"--config: {path}: there is no setting {name!r}{hint}")
    return written


def _sentence(problem: str) -> str:
    text, _, flag = problem.partition(" - at `$.")
    text = without_type_names(text)
    return f"--{flag.rstrip('`')}: {text}" if flag else text
