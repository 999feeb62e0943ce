"""Counts of webhook calls, from the metrics of a cluster's API server and of Orchid.

The API server counts calls that failed, and the answers that it got from an address by HTTP status,
which shows why. Orchid counts its answers, too: of the one server that the command talks to.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from orchid.features.clusters.commands import cluster_setup
from orchid.kernel.terminal.connection import ServerConnection

OK: Final = 200
EVALUATIONS: Final = "apiserver_authorization_webhook_evaluations_total"
CALLS: Final = "rest_client_requests_total"
ANSWERS: Final = "apiserver_request_total"
WEBHOOKS: Final = 'subresource="/webhook/clusters/"'
FAULTS: Final = (
    "look for a wrong address or authority in webhook.kubeconfig, a token that has expired (orchid "
    "cluster credential), a network in between, or an Orchid that does not run"
)
_SAMPLE: Final = re.compile(r"^(\w+)\{(.*)\} ([0-9.e+]+)$")
_CODE: Final = re.compile(r'\bcode="([^"]*)"')

# By the answer that the API server got: the reason, and what to do.
REFUSALS: Final[Mapping[str, tuple[str, str]]] = {
    "401": (
        "Orchid refused the token of the API server (401)",
        "it has expired or was revoked, or it is of another Orchid; run: orchid cluster credential "
        "{name}, and copy the new webhook.token to the API server",
    ),
    "403": (
        "Orchid does not permit the token of the API server to call this webhook (403)",
        "is it the webhook.token of this cluster? Run: orchid cluster add {name}",
    ),
    "404": (
        "the address in webhook.kubeconfig names a cluster that is not registered (404)",
        "run: orchid cluster add {name}, and copy its files",
    ),
    "429": ("Orchid is overloaded (429)", "run more Orchid servers"),
    "503": ("the store of Orchid did not answer (503)", "run: orchid doctor"),
    "504": ("the store of Orchid did not answer in time (504)", "run: orchid doctor"),
    "<error>": (
        "the API server got no answer from the address in webhook.kubeconfig",
        "does Orchid run there, can the API server reach it, and is its certificate of the "
        "authority in webhook.kubeconfig?",
    ),
}


class WebhookCounts(NamedTuple):
    """Calls of the webhook; None if the metrics of the API server cannot be read."""

    succeeded: int | None
    failed: int | None
    answers: Mapping[str, int]  # by status, as far as the API server or Orchid counts them

    def refusal(self, before: "WebhookCounts", cluster: str) -> tuple[str, str] | None:
        """Why calls failed since `before`, and what to do; None if no answer shows it."""
        for status, (reason, advice) in REFUSALS.items():
            if self.answers.get(status, 0) > before.answers.get(status, 0):
                return reason, advice.format(name=cluster)
        return None


def counted(server: ServerConnection, cluster: ServerConnection, url: str) -> WebhookCounts:
    """The counts of Orchid and of the API server of a cluster, which calls a URL."""
    answers: Counter[str] = Counter()
    ours, theirs = _page(server), _page(cluster)
    host = f'host="{urlsplit(url).netloc}"'
    for page, metric, label in ((ours, ANSWERS, WEBHOOKS), (theirs, CALLS, host)):
        for labels, number in _samples(page or "", metric, label):
            if code := _CODE.search(labels):
                answers[code.group(1)] += number
    if theirs is None:
        return WebhookCounts(None, None, answers)
    samples = list(_samples(theirs, EVALUATIONS, f'name="{cluster_setup.AUTHORIZER}"'))
    succeeded = sum(number for labels, number in samples if 'result="success"' in labels)
    return WebhookCounts(succeeded, sum(number for _, number in samples) - succeeded, answers)


def _page(server: ServerConnection) -> str | None:
    """The metrics of a server; None without access to them."""
    status, page = server.text("/metrics")
    return page if status == OK else None


def _samples(page: str, metric: str, label: str) -> Iterator[tuple[str, int]]:
    """The samples of a metric that have a label."""
    for line in page.splitlines():
        sample = _SAMPLE.match(line) if line.startswith(metric) else None
        if sample is not None and label in sample.group(2):
            yield sample.group(2), int(float(sample.group(3)))
