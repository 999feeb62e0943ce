"""`orchid cluster doctor`: findings from the Cluster, and from the counts of both sides."""

from datetime import timedelta
from typing import Any, cast

import pytest

from orchid.features.clusters.commands import cluster_checks
from orchid.features.clusters.commands.webhook_counts import REFUSALS, WebhookCounts, counted
from orchid.kernel.terminal import times
from orchid.kernel.terminal.connection import ServerConnection
from orchid.kernel.wire.text import timestamp

NAME = "apiserver_authorization_webhook_evaluations_total"
OTHER = f'{NAME}{{name="other",result="success"}} 99'
ORCHID = 'apiserver_request_total{{code="{}",subresource="/webhook/clusters/",verb="POST"}} {}'
NONE = WebhookCounts(7, 0, {"200": 7})


class Pages:
    """A server with a page of metrics."""

    def __init__(self, *lines: str, status: int = 200) -> None:
        self._page = status, "\n".join(lines)

    def text(self, place: str) -> tuple[int, str]:
        assert place == "/metrics"
        return self._page


def counts(orchid: Pages, cluster: Pages) -> WebhookCounts:
    servers = cast("ServerConnection", orchid), cast("ServerConnection", cluster)
    return counted(*servers, "https://orchid.example:6443/webhook/clusters/prod/authorize")


def test_the_counts_of_both_sides() -> None:
    """Only those of our webhook; each result but success is a failure."""
    lines = [f'{NAME}{{name="orchid",result="{word}"}} 2' for word in ("success", "error")]
    answers = [
        ORCHID.format(200, "1e+06"),
        ORCHID.format(401, 3),
        'apiserver_request_total{code="500"} 1',
    ]

    found = counts(Pages(*answers), Pages(*lines, lines[1].replace("error", "timeout"), OTHER))

    assert found == (2, 4, {"200": 1_000_000, "401": 3})


def test_answers_that_the_api_server_got_from_the_address_of_orchid() -> None:
    """They are the same on every Orchid server; calls of other addresses are not counted."""
    name = "rest_client_requests_total"
    lines = [
        f'{name}{{code="401",host="orchid.example:6443",method="POST"}} 5',
        f'{name}{{code="<error>",host="orchid.example:6443",method="POST"}} 2',
        f'{name}{{code="401",host="other.example",method="POST"}} 9',
    ]

    found = counts(Pages(), Pages(*lines))

    assert found == (0, 0, {"401": 5, "<error>": 2})


def test_pages_that_cannot_be_read() -> None:
    found = counts(Pages(status=403), Pages(OTHER, status=403))
    assert found == (None, None, {})


@pytest.mark.parametrize("status", REFUSALS)
@pytest.mark.parametrize("failed", [None, 4])
def test_a_call_that_orchid_refused_is_the_reason(status: str, failed: int | None) -> None:
    """Also if the metrics of the API server cannot be read."""
    before = WebhookCounts(failed and 0, failed and 0, {status: 2})
    found = cluster_checks._why(before, WebhookCounts(failed and 0, failed, {status: 5}), "prod")

    assert found.state == "wrong"
    assert REFUSALS[status][0] in found.text
    assert "{name}" not in found.advice


def test_an_expired_token_of_the_api_server_is_named() -> None:
    """As the answer 401, and what to do about it."""
    found = cluster_checks._why(NONE, WebhookCounts(7, 6, {"200": 7, "401": 6}), "prod")
    assert "refused the token of the API server (401)" in found.text
    assert "has expired" in found.advice
    assert "orchid cluster credential prod" in found.advice


@pytest.mark.parametrize(
    ("after", "text"),
    [
        (WebhookCounts(7, 3, {"200": 7}), "3 calls of the webhook failed"),
        (NONE, "has no webhook 'orchid'"),
        (WebhookCounts(9, 0, {"200": 9}), "though the webhook answered"),
        (WebhookCounts(None, None, {"200": 9}), "cannot be read"),
    ],
)
def test_other_reasons_are_found_by_the_counts_of_the_api_server(
    after: WebhookCounts, text: str
) -> None:
    assert text in cluster_checks._why(NONE, after, "prod").text


@pytest.mark.parametrize(
    ("days", "state", "text"),
    [(-1, "wrong", "has expired"), (29, "soon", "expires"), (31, "good", "expires")],
)
def test_the_end_of_the_credential_on_record(days: int, state: str, text: str) -> None:
    end = timestamp(times.now() + timedelta(days=days))
    cluster: dict[str, Any] = {
        "metadata": {"name": "prod"},
        "spec": {"credential": {"expires": end}},
    }

    (found,) = cluster_checks._credential(cluster)

    assert (found.state, text in found.text) == (state, True)
    assert (state == "good") is (found.advice == "")


def test_calls_that_were_no_reviews_do_not_fail_doctor_for_ever() -> None:
    """Their count never goes down: it is reported, and is no failure."""
    findings = list(cluster_checks._calls(lambda: {"status": {"malformed": 2}}))
    assert [one.state for one in findings] == ["soon", "soon"]
    assert "2 calls were no reviews" in findings[1].text
