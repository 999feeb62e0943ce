"""Elements that follow changes: the script of a page replaces those that the page has."""

from pathlib import Path

import jinja2
import pytest
from jinja2 import nodes

import orchid.features.console

TEMPLATES = Path(orchid.features.console.__file__).parent / "templates"
ENVIRONMENT = jinja2.Environment(autoescape=True)
# A page that its reader may not see, and the kind of a revocation: these do not change.
CONSTANT = {"is_missing", "kind"}


def live_ids(body: list[nodes.Node]) -> set[str]:
    """The ids of the elements with data-live in some nodes of a template."""
    texts = (data.data for node in body for data in texts_of(node))
    tags = (tag.partition(">")[0] for text in texts for tag in text.split("<"))
    return {tag.partition('id="')[2].partition('"')[0] for tag in tags if "data-live" in tag}


def texts_of(node: nodes.Node) -> list[nodes.TemplateData]:
    own = [node] if isinstance(node, nodes.TemplateData) else []
    return [*own, *node.find_all(nodes.TemplateData)]


@pytest.mark.parametrize("template", sorted(path.name for path in TEMPLATES.glob("*.html")))
def test_an_element_that_follows_changes_is_there_in_every_state(template: str) -> None:
    """One that appears only after a change would not appear until the page is loaded again."""
    tree = ENVIRONMENT.parse((TEMPLATES / template).read_text())

    for choice in tree.find_all(nodes.If):
        names = [choice.test, *choice.test.find_all(nodes.Getattr)]
        if any(getattr(name, "attr", "") in CONSTANT for name in names):
            continue
        branches = [choice.body, *(each.body for each in choice.elif_), choice.else_]
        ids = [live_ids(branch) for branch in branches]
        assert all(each == ids[0] for each in ids), f"line {choice.lineno}: {ids}"


def test_an_element_without_a_placeholder_is_noticed() -> None:
    """The check above sees what it is for."""
    tree = ENVIRONMENT.parse('{% if x %}<p id="a" data-live>{{ x }}</p>{% endif %}')
    (choice,) = tree.find_all(nodes.If)

    assert live_ids(choice.body) == {"a"}
    assert live_ids(choice.else_) == set()
