"""Rules for the files of the console: no way around escaping, and limits of size."""

import re
from pathlib import Path

import pytest

import orchid.features.console

HERE = Path(orchid.features.console.__file__).parent
TEMPLATES = sorted((HERE / "templates").glob("*.html"))
FORBIDDEN = re.compile(
    r"""\|\s*safe\b | Markup | autoescape | \bstyle\s*= | \son[a-z]+\s*= | <script(?![^>]*\ssrc=)
      | javascript: | https?:// | srcdoc | <iframe | <object | <embed | <base\b""",
    re.VERBOSE | re.IGNORECASE,
)
UNSAFE_SCRIPT = re.compile(
    r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|Function\(|createPolicy"
)


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda path: path.name)
def test_no_template_can_show_markup_of_a_value(template: Path) -> None:
    """Neither a word that switches escaping off, nor a place where escaping does not help."""
    assert FORBIDDEN.findall(template.read_text()) == []


def test_the_walk_recognises_what_it_forbids() -> None:
    """Otherwise it would find nothing."""
    for text in (
        "{{ name|safe }}",
        "{{ Markup(x) }}",
        '<p style="x">',
        "<a onclick=x>",
        "<script>x",
        "{% autoescape false %}",
    ):
        assert FORBIDDEN.search(text), text


def test_no_module_makes_markup_of_text() -> None:
    """Only the environment of the templates writes HTML, with autoescape."""
    for module in HERE.rglob("*.py"):
        text = module.read_text()
        assert "Markup" not in text, module.name
        assert "from_string" not in text, module.name
    assert "autoescape=True" in (HERE / "rendering.py").read_text()


def test_every_attribute_with_a_value_is_quoted() -> None:
    """Escaping protects a value only between quotes."""
    for template in TEMPLATES:
        assert not re.search(r"(?<!; url)=\{\{", template.read_text()), template.name


def test_every_button_and_field_names_its_type() -> None:
    """As html-validate recommends, which finds nothing else in the pages."""
    for template in TEMPLATES:
        for element in re.findall(r"<(?:button|input)\b[^>]*", template.read_text()):
            assert element.count(" type=") == 1, (template.name, element)


def test_the_script_and_the_style_sheet_are_small() -> None:
    """One script of at most 200 lines and 8 kB, one style sheet of at most 12 kB."""
    script = (HERE / "static" / "script.js").read_text()
    style = (HERE / "static" / "style.css").read_text()

    assert len(script.splitlines()) <= 200
    assert len(script.encode()) <= 8 * 1024
    assert len(style.encode()) <= 12 * 1024
    assert not UNSAFE_SCRIPT.search(script)
    assert "url(" not in style
    assert {path.suffix for path in (HERE / "static").iterdir()} == {".js", ".css", ".svg"}
