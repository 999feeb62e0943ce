"""Revocation lists over HTTP, below /crl/: `<name>.crl` in DER, `<name>.pem` in PEM.

Each key of an authority has a list: the first one that of the authority's name, and each other one
that of its own name. The PEM file of an authority has the lists of all its keys, because a verifier
that checks the whole chain of a cross certificate needs them.

No credential is needed for them: a list is signed and public. GET and HEAD are answered, with an
entity tag, and `If-None-Match` with 304. There is no Last-Modified: two lists may be signed within
one second, and a client would miss the second list.

`RevocationListPages` is the page of the server itself; `PlainRevocationLists` serves the same lists
and nothing else on a listener without TLS, because many clients fetch lists over plain HTTP only.
"""

import hashlib
import operator
from collections.abc import Callable
from typing import Final, NamedTuple

from orchid.kernel.credentials.x509 import pem
from orchid.kernel.http.messages import HttpRequest, Response
from orchid.kernel.server.pages.conditional import is_current
from orchid.kernel.server.request_state import RequestState
from orchid.kernel.server.respond import head
from orchid.kernel.wire.errors import MethodNotAllowed, NoSuchRoute

PREFIX: Final = "/crl/"
CACHE: Final = b"public, max-age=60, must-revalidate"
_DER, _PEM = b"application/pkix-crl", b"application/x-pem-file"
_LABEL: Final = "X509 CRL"
LONGEST_NAME: Final = 253
READING: Final = ("GET", "HEAD")

Find = Callable[[str], bytes | None]
FindAll = Callable[[str], tuple[bytes, ...]]


class ServedList(NamedTuple):
    """A list as it is sent."""

    media: bytes
    tag: str
    body: bytes

    @property
    def headers(self) -> bytes:
        return b'Content-Type: %b\r\nEtag: "%b"\r\n' % (self.media, self.tag.encode())


class ServedLists:
    """Lists by path, each encoded and hashed once."""

    def __init__(self, find: Find, find_all: FindAll) -> None:
        """`find_all`: the lists of all keys of an authority."""
        self._find = find
        self._find_all = find_all
        self._made: dict[str, tuple[tuple[bytes, ...], ServedList]] = {}

    def asked_for(self, http: HttpRequest) -> ServedList:
        """The list of a request."""
        if http.method not in READING:
            raise MethodNotAllowed
        served_list = self.at(http.path)
        if served_list is None:
            raise NoSuchRoute
        return served_list

    def at(self, path: str) -> ServedList | None:
        """The list of a path, or None."""
        name = path.removeprefix(PREFIX)
        authority, dot, ending = name.rpartition(".")
        if not path.startswith(PREFIX) or not dot or len(name) > LONGEST_NAME or "/" in name:
            return None
        lists = self._lists(authority, ending)
        if not lists:
            self._made.pop(name, None)
            return None
        cached = self._made.get(name)
        if cached is None or not _are_same(cached[0], lists):
            cached = self._made[name] = (lists, _served(lists, ending))
        return cached[1]

    def _lists(self, name: str, ending: str) -> tuple[bytes, ...]:
        if ending == "pem":
            return self._find_all(name)
        found = self._find(name) if ending == "crl" else None
        return () if found is None else (found,)


class RevocationListPages:
    """Everything below the prefix; call it with the state of a request."""

    def __init__(self, lists: ServedLists) -> None:
        self._lists = lists

    def __call__(self, state: RequestState) -> Response:
        served_list = self._lists.asked_for(state.http)
        headers = head(state, served_list.headers, cache=CACHE)
        if is_current(state.http, served_list.tag):
            return Response(304, headers)
        return Response(200, headers, served_list.body, is_cached=True)


class PlainRevocationLists:
    """The handler of a listener without TLS: lists, and 404 for all else (failures.failed)."""

    def __init__(self, lists: ServedLists) -> None:
        self._lists = lists

    async def __call__(self, http: HttpRequest) -> Response:
        served_list = self._lists.asked_for(http)
        headers = served_list.headers + b"Cache-Control: %b\r\n" % CACHE
        if is_current(http, served_list.tag):
            return Response(304, headers)
        return Response(200, headers, served_list.body, is_cached=True)


def _are_same(some: tuple[bytes, ...], others: tuple[bytes, ...]) -> bool:
    """Whether both are the same objects: lists are long, and cached where they come from."""
    return len(some) == len(others) and all(map(operator.is_, some, others))


def _served(lists: tuple[bytes, ...], ending: str) -> ServedList:
    if ending == "crl":
        media, body = _DER, lists[0]
    else:
        media, body = _PEM, b"".join(pem.encode(_LABEL, data) for data in lists)
    return ServedList(media, hashlib.sha256(body).hexdigest(), body)
