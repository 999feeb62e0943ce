"""Counters, gauges and durations: one number or histogram per set of labels."""

from orchid.kernel.base.metrics import (
    Counter,
    Durations,
    Gauge,
    Histogram,
    Joining,
    Sample,
    doubling,
    joined,
    lasting,
    packed,
    unpacked,
)


def test_a_counter_counts_each_set_of_labels_by_itself() -> None:
    """Each combination of labels has its own number; a reset starts all of them again."""
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
        Joining.SUM,
    )
    counter.reset()
    assert counter.family().samples == []


def test_what_has_no_labels_is_there_before_it_happens() -> None:
    """An alert on its rate needs the 0 before the first 1; a reset goes back to that 0."""
    counter = Counter("held_total", "How often.")
    durations = Durations("took_seconds", "How long.", (1.0,))
    empty = [Sample((), Histogram((1.0,), [0, 0]))]

    assert counter.family().samples == [Sample((), 0)]
    assert durations.family().samples == empty
    counter.count()
    durations.observe(0.5)
    assert counter.family().samples == [Sample((), 1)]
    assert durations.family().samples == [Sample((), Histogram((1.0,), [1, 0], 0.5))]
    counter.reset()
    durations.reset()
    assert counter.family().samples == [Sample((), 0)]
    assert durations.family().samples == empty
    assert Gauge("newest", "The newest.").family().samples == []  # nobody knows it yet


def test_a_gauge_shows_the_current_value_and_survives_a_reset() -> None:
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


def test_families_of_several_processes_become_one() -> None:
    """Each is joined in its own way, and travels without loss."""
    reports = []
    for number in (2, 5):
        counter = Counter("asked_total", "Questions.", "who")
        newest = Gauge("newest", "The newest.", joins=Joining.MOST)
        first = Gauge("first", "The first.", joins=Joining.LEAST)
        took = Durations("took_seconds", "How long.", (1.0,))
        counter.count(f"only-{number}")
        counter.count("both")
        newest.set(number)
        first.set(number)
        took.observe(number / 4)
        metrics = (counter, newest, first, took)
        reports.append(unpacked(packed(metric.family() for metric in metrics)))

    asked, most, least, durations = joined(reports)

    assert {sample.labels[0][1]: sample.value for sample in asked.samples} == {
        "only-2": 1,
        "only-5": 1,
        "both": 2,
    }
    assert (most.samples, least.samples) == ([Sample((), 5)], [Sample((), 2)])
    assert durations.samples == [Sample((), Histogram((1.0,), [1, 1], 1.75))]


def test_of_an_ended_process_only_what_it_counted_stays() -> None:
    """Gauges, and numbers that all processes count, end with the process."""
    counter = Counter("asked_total", "Questions.")
    shared = Counter("seen_total", "Seen by all.", joins=Joining.MOST)
    gauge = Gauge("open", "Open now.")
    for metric in (counter, shared, gauge):
        metric.count()

    kept = lasting(metric.family() for metric in (counter, shared, gauge))

    assert [family.name for family in kept] == ["asked_total"]
