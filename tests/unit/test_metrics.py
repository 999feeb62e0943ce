"""Counters, gauges and durations: one number or histogram per set of labels."""

from orchid.metrics import Counter, Durations, Gauge, Histogram, Sample, doubling


def test_a_counter_counts_each_set_of_labels_by_itself() -> None:
    """What differs in a label is another number; a reset begins all of them again."""
    counter = Counter("asked_total", "Questions.", "who", "answer")
    for who, answer in (("a", "yes"), ("b", "no"), ("a", "yes")):
        counter.count(who, answer)

    assert counter.family() == (
        "asked_total",
        "counter",
        "Questions.",
        [
            Sample((("who", "a"), ("answer", "yes")), 2),
            Sample((("who", "b"), ("answer", "no")), 1),
        ],
    )
    counter.reset()
    assert counter.family().samples == []


def test_a_gauge_tells_what_is_so_and_outlives_a_reset() -> None:
    """The time of the last reload is true whether or not anybody begins to count again."""
    gauge = Gauge("last_seconds", "When.", "status")
    gauge.set(5.0, "success")
    gauge.set(7.5, "success")

    gauge.reset()

    assert gauge.family().type == "gauge"
    assert gauge.family().samples == [Sample((("status", "success"),), 7.5)]


def test_durations_fall_into_buckets() -> None:
    """A bound belongs to its bucket; what is longer than all of them is counted last."""
    durations = Durations("took_seconds", "How long.", doubling(0.001, 3), "what")
    for seconds in (0.0005, 0.001, 0.003, 1.0):
        durations.observe(seconds, "x")

    (sample,) = durations.family().samples
    assert isinstance(sample.value, Histogram)
    assert sample.value.bounds == (0.001, 0.002, 0.004)
    assert sample.value.counts == [2, 0, 1, 1]
    durations.reset()
    assert durations.family().samples == []
