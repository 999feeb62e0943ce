"""What a measurement is compared with: benchmarks/figures.py."""

from benchmarks.figures import FIGURES


def test_what_rests_on_the_scale_of_the_machine_is_called_a_guess() -> None:
    """Sizes are the same everywhere, and a figure of its own needs nobody to compare with."""
    sure = {figure.name for figure in FIGURES if not figure.is_guessed}

    assert sure == {
        "csr-issue",
        "csr-policy",
        "memory",
        "cold-start",
        "watch-memory",
        "watch-fanout",
    }


def test_a_faster_machine_raises_the_reference_but_not_a_figure_of_its_own() -> None:
    """Twice as fast: twice the rate of the reference, and half of the ratio that is wanted."""
    figures = {figure.name: figure for figure in FIGURES}

    assert figures["get"].wanted(scale=2) == figures["get"].wanted(scale=1)
    must, aim = figures["csr-issue"].wanted(scale=2)
    assert (must * 150 * 2, aim * 150 * 2) == (450, 800)
