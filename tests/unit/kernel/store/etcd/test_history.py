"""The history of our keys in etcd: where a watch resumes."""

from typing import cast

import pytest

from orchid.kernel.store.etcd.client import EtcdClient
from orchid.kernel.store.etcd.history import EtcdHistory, NewestRevisions
from orchid.kernel.store.etcd.keys import Keyspace
from orchid.kernel.store.etcd.messages import EtcdEvent, Header, WatchResponse


class NoClient:
    """No call is made."""


def begun(newest: int, header: int) -> EtcdHistory:
    client = cast(EtcdClient, NoClient())
    return EtcdHistory(client, Keyspace("/orchid"), NewestRevisions(newest, header))


def progress(revision: int, *, created: bool = False) -> WatchResponse:
    return WatchResponse(header=Header(revision=revision), created=created)


def test_a_progress_notification_says_how_far_the_watch_is() -> None:
    """No event of ours is up to its revision; the next one may be."""
    history = begun(5, 10)

    history._take(progress(20))

    assert history.has(20)
    assert not history.has(21)


@pytest.mark.parametrize("revision", [11, 19])
def test_a_late_progress_notification_does_not_go_back(revision: int) -> None:
    """Events that were seen would come again, and commits be reported twice."""
    history = begun(5, 10)
    history._take(progress(20))

    history._take(progress(revision))

    assert history.has(20)


def test_the_first_response_of_a_watch_says_nothing() -> None:
    """Its revision is that of the member, and events before it are still to come."""
    history = begun(5, 10)

    history._take(progress(20, created=True))

    assert history.has(10)
    assert not history.has(11)


def test_repeated_events_are_no_progress_notification() -> None:
    """A response with events is no notification, also if all of them were seen before."""
    history = begun(5, 10)

    history._take(WatchResponse(header=Header(revision=20), events=[EtcdEvent()]))

    assert not history.has(11)
