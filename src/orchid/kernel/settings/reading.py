"""Reading settings: a TOML file and the flags of a command; flags win.

A misspelt key or a value of the wrong type raises `BadSettings`, with a message for the user.
Types of values.py parse texts meanwhile; checking.py validates the rest.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from orchid.kernel.settings.errors import BadSettings
from orchid.kernel.settings.given import Given
from orchid.kernel.settings.values import Value
from orchid.kernel.wire.text import without_type_names


def read(type_: type[Given], config: Path | None, flags: Mapping[str, Any]) -> Given:
    """Merge the file and the flags; flags win."""
    written = {**written_in(type_, config), **flags}
    for field in msgspec.structs.fields(type_):
        # A list with one element may be written without brackets.
        if isinstance(field.default, tuple) and isinstance(written.get(field.encode_name), str):
            written[field.encode_name] = [text] if (text := written[field.encode_name]) else []
    try:
        return msgspec.convert(written, type_, strict=False, dec_hook=_parse)
    except msgspec.ValidationError as problem:
        raise BadSettings(_sentence(str(problem))) from None


def written_in(type_: type[Given], path: Path | None) -> dict[str, Any]:
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
    names = [field.encode_name for field in msgspec.structs.fields(type_)]
    for name in written:
        if name not in names:
            close = difflib.get_close_matches(name, names, n=1)
            hint = f"; did you mean {close[0]}?" if close else ""
            raise BadSettings(f"--config: {path}: there is no setting {name!r}{hint}")
    return written


def _parse(type_: type[Value], written: object) -> Value:
    try:
        return type_(msgspec.convert(written, str))
    except msgspec.ValidationError as problem:
        raise ValueError(str(problem)) from None


def _sentence(problem: str) -> str:
    text, _, flag = problem.rpartition(" - at `$.")
    text = without_type_names(text)
    return f"--{flag.rstrip('`')}: {text}" if flag else text
