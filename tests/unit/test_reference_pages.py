"""docs/settings.md names every setting with its default, docs/metrics.md every metric of ours."""

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from orchid.assembly.settings import EverySetting

ROOT = Path(__file__).resolve().parents[2]
SETTINGS, METRICS, *OTHERS = (
    ROOT / "docs" / f"{name}.md"
    for name in ("settings", "metrics", "operations", "limits", "access")
)
ROW = re.compile(r"^\| `--([\w-]+)` \| (.+?) \| (.+) \|$", re.MULTILINE)
OWN_METRIC = re.compile(r"\borchid_[a-z_]+[a-z]\b")
FIELDS = {field.encode_name: field for field in msgspec.structs.fields(EverySetting)}


def rows() -> dict[str, tuple[str, str]]:
    return {name: (default, text) for name, default, text in ROW.findall(SETTINGS.read_text())}


def written(default: Any) -> str:
    if isinstance(default, tuple):
        return " ".join(f"`{each}`" for each in default) or "—"
    if isinstance(default, bool):
        return f"`{str(default).lower()}`"
    return f"`{default}`" if default != "" else "—"


@pytest.mark.parametrize("name", FIELDS)
def test_setting_is_explained_with_its_default(name: str) -> None:
    """A missing line, or a wrong default in it, misleads operators."""
    default, text = rows().get(name, ("no line", ""))

    assert default == written(FIELDS[name].default)
    assert text.endswith(".")


def test_no_setting_is_explained_that_does_not_exist() -> None:
    """A line that outlives its setting sends people after nothing."""
    assert set(rows()) <= set(FIELDS)


def test_every_metric_of_ours_is_explained() -> None:
    """A metric that no page names is watched by nobody."""
    sources = (ROOT / "src" / "orchid").rglob("*.py")
    counted = {
        name for path in sources for name in re.findall(r'"(orchid_[a-z_]+)"', path.read_text())
    }

    missing = counted - set(OWN_METRIC.findall(METRICS.read_text()))

    assert counted
    assert not missing, f"explain {sorted(missing)} in docs/metrics.md"


def test_every_flag_in_the_text_exists() -> None:
    """Flags that the text speaks of are settings, or flags of the commands it shows."""
    of_commands = {"config", "with-encryption-key", "all", "keys"}
    text = "\n".join(page.read_text() for page in (SETTINGS, METRICS, *OTHERS))

    named = set(re.findall(r"(?<![\w-])--([a-z][\w-]+)(?![\w<-]*-<)", text))

    assert {name for name in named if not name.endswith("-")} <= set(FIELDS) | of_commands
