"""Settings as they are read from a file."""

from pathlib import Path

import pytest

from orchid.assembly.settings import read
from orchid.features.console.settings import ConsoleSettings
from orchid.kernel.settings.errors import BadSettings


def test_misspelt_setting_names_the_file_and_the_one_that_was_meant(tmp_path: Path) -> None:
    """The message names the line to fix."""
    path = tmp_path / "orchid.toml"
    path.write_text('lisen = "127.0.0.1:1"\n')

    with pytest.raises(BadSettings, match="there is no setting 'lisen'; did you mean listen") as no:
        read(path, {})

    assert str(path) in str(no.value)


def test_a_value_of_the_wrong_type_is_reported_in_words(tmp_path: Path) -> None:
    """By the name of the setting."""
    path = tmp_path / "orchid.toml"
    path.write_text("listen = [7730]\n")

    with pytest.raises(BadSettings, match="--listen: must be text, not a list"):
        read(path, {})


def test_a_worker_reads_the_settings_that_its_parent_has() -> None:
    """Every value, of the kernel and of features, is the same text again."""
    first = read(None, {"history": "90s", "console-session": "1h", "api-audiences": ["x", "y"]})

    again = read(None, first.as_written())

    assert again == first
    assert again.history.seconds == 90
    assert again.of(ConsoleSettings).console_session.seconds == 3600
