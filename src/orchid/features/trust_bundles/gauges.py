"""Metrics of published bundles, from their status, and the number of waiting requests."""

from collections.abc import Callable

from orchid.features.trust_bundles.editions import PublishedEditions
from orchid.features.trust_bundles.kinds.published_bundle import PublishedBundle
from orchid.kernel.base.metrics import Family, Joining, Sample


class BundleGauges:
    """The status of each bundle, as metrics."""

    def __init__(self, editions: PublishedEditions) -> None:
        self._editions = editions
        self.all = (
            _Family(self._changed), _Family(self._ready), _Family(self._consumers),
            _Family(self._waiting),
        )  # fmt: skip

    def _changed(self) -> Family:
        text = "When the current edition of a published bundle was made, since the epoch."
        samples = [_sample(bundle, bundle.status.sequence) for bundle in self._bundles()]
        return Family(
            "orchid_published_bundle_changed_seconds", "gauge", text, samples, Joining.MOST
        )

    def _ready(self) -> Family:
        text = "Whether the current edition of a published bundle has what its sources have."
        samples = [_sample(one, int(one.is_ready)) for one in self._bundles()]
        return Family("orchid_published_bundle_ready", "gauge", text, samples, Joining.LEAST)

    def _consumers(self) -> Family:
        text = "Named consumers of a published bundle, by whether they have its current edition."
        samples = []
        for bundle in self._bundles():
            if (consumers := bundle.status.consumers) is not None:
                samples.append(_sample(bundle, consumers.current, ("state", "current")))
                samples.append(_sample(bundle, consumers.behind, ("state", "behind")))
        return Family("orchid_published_bundle_consumers", "gauge", text, samples, Joining.MOST)

    def _waiting(self) -> Family:
        text = "Requests that wait for a change of a published bundle."
        return Family("orchid_trust_waiting", "gauge", text, [Sample((), self._editions.waiting)])

    def _bundles(self) -> list[PublishedBundle]:
        return [one for one in self._editions.bundles.values() if one.status.sequence]


class _Family:
    """A metric that is computed when it is read."""

    def __init__(self, family: Callable[[], Family]) -> None:
        self.family = family

    def reset(self) -> None:
        """Gauges are not reset."""


def _sample(bundle: PublishedBundle, value: int, *labels: tuple[str, str]) -> Sample:
    return Sample((("bundle", bundle.name), *labels), value)
