"""How a call to another server fails. No text holds a credential or what was sent or received.

    CallFailed
    ├── ServerUnreachable   no connection, or it broke: trying again may help
    ├── TimedOut            no complete answer in time
    └── AnswerRefused       an answer that we cannot use; has the status, and when to try again

Whether the server has done what it was asked to is not known after any of them.
"""

_RETRIED = (429, 500, 504)


class CallFailed(Exception):
    """The call did not bring a usable answer."""

    can_retry = False
    retry_after: float = 0.0


class ServerUnreachable(CallFailed):
    can_retry = True


class TimedOut(CallFailed):
    pass


class AnswerRefused(CallFailed):
    def __init__(self, text: str, status: int = 0, retry_after: float = 0.0) -> None:
        super().__init__(text)
        self.status = status
        self.retry_after = retry_after
        self.can_retry = status in _RETRIED or retry_after > 0
