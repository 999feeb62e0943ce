"""Check the server in this container: exit code 0 if /livez succeeds, otherwise 1.

    healthcheck.py [PORT]

The certificate is not verified: the server is on loopback, in the same container, and the request
contains no secret. Needs only the standard library.
"""

import http.client
import ssl
import sys

SECONDS = 4


def lives(port: int) -> bool:
    tls = ssl._create_unverified_context()  # noqa: S323 -- see above
    connection = http.client.HTTPSConnection("127.0.0.1", port, context=tls, timeout=SECONDS)
    try:
        connection.request("GET", "/livez")
        return connection.getresponse().status == http.client.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


if __name__ == "__main__":
    sys.exit(0 if lives(int(sys.argv[1]) if len(sys.argv) > 1 else 6443) else 1)
