"""Caches of earlier requests that a request may use.

| Cached                | Key                 | At most           | Ended by           | Saves     |
|-----------------------|---------------------|-------------------|--------------------|-----------|
| headers, as objects   | their bytes, except | 4 per connection, | its end, a stream, | 2/3 of    |
| (kernel/http/reading) | the length, and the | 4 KiB together    | or newer heads     | reading a |
|                       | connection          |                   |                    | request   |
| values of headers     | the same            | the same          | the same           | 2 µs      |
| (head_facts.py)       |                     |                   |                    |           |
| what a client accepts | Accept, User-Agent, | 256, each up to   | newer clients      | 5 µs      |
| and is (head_facts.py)| Accept-Encoding,    | 1,024 characters  |                    |           |
|                       | Content-Type        |                   |                    |           |
| caller (head_facts.py)| the same            | the same          | the same, or a     | hashing   |
|                       |                     |                   | check that fails   | the token |
| paths, parsed; their  | method and path,    | 4,096, each up to | newer paths        | 4 µs      |
| routes and labels     | without a query     | 256 characters    |                    |           |
| (paths.py)            |                     |                   |                    |           |

The parser reads every request, also with a cached head: request line, length and framing never come
from a cache. Rights are decided in every request, before the route is used. A cached caller is
checked in every request (`Authenticated.still_valid`).

Caches that belong to one check are inside it: the chain of a client certificate, by connection
(features/certificates/authenticators/client_certificate.py); verified signatures
(kernel/credentials/tokens.py); grants, by the generation of roles and bindings
(features/rights/authorizers/rbac.py); results of webhooks, for the configured time
(features/rights/authorizers/webhook.py, features/sign_in/authenticators/webhook_token.py); parsed
Accept headers (kernel/server/negotiate.py).
"""
