"""Templates: jinja2, always with autoescape.

No value of the API is trusted. A template cannot switch escaping off: a test forbids the words that
would (tests/unit/features/console/test_templates.py).
"""

import hashlib
from pathlib import Path
from typing import Any, Final

from jinja2 import Environment, FileSystemLoader

from orchid.features.console import text
from orchid.kernel.base.version import __version__

HERE: Final = Path(__file__).parent
MEDIA: Final = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8"}


class Renderer:
    """Renders templates, and has the static files under names with their digest."""

    def __init__(self) -> None:
        self._environment = Environment(
            loader=FileSystemLoader(HERE / "templates"),
            autoescape=True,
            trim_blocks=True,
            lstrip_blocks=True,
            auto_reload=False,
        )
        self._environment.filters.update(
            spelled=text.spelled,
            spelled_lines=text.spelled_lines,
            certificate_state=text.certificate_state,
            spelling=text.spelling,
            relative=text.relative,
            exact=text.exact,
            iso=text.iso,
            span=text.span,
            short=text.short,
        )
        self.files: dict[str, tuple[str, bytes]] = {}
        names = {}
        for file in sorted((HERE / "static").iterdir()):
            data = file.read_bytes()
            digest = hashlib.sha256(data).hexdigest()[:12]
            names[file.name] = f"/static/{file.stem}-{digest}{file.suffix}"
            self.files[names[file.name]] = (MEDIA.get(file.suffix, "image/svg+xml"), data)
        self._environment.globals.update(static=names, version=__version__, longest=text.LONGEST)

    def compile_all(self) -> None:
        """Compile every template, which takes a while, before the first page is shown."""
        for name in self._environment.list_templates():
            self._environment.get_template(name)

    def render(self, template: str, **values: Any) -> bytes:
        return self._environment.get_template(template).render(**values).encode()
