"""Failures of a call to another server. No message has a credential or any sent or received data.

    CallFailed
    ├── ServerUnreachable   no connection, or it broke: a retry may help
    ├── TimedOut            no complete response in time
    └── AnswerRefused       an unusable response; has the status, and the time for a retry
        └── AnswerOverLimit     more bytes, values or objects than were permitted

After any of them it is unknown whether the server has executed the request.
"""

_RETRIED = (429, 500, 504)


class CallFailed(Exception):
    """The call had no usable response."""

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


class AnswerOverLimit(AnswerRefused):
    pass
