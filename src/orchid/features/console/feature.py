"""Pages for people in a browser, on a user's machine or on the server.

Kinds      ConsoleSession
Pages      its own listener
Uses       sign_in
Read first site.py
"""

from orchid.features.console.identity import IDENTITY
from orchid.features.console.kinds import console_session
from orchid.kernel.feature import Feature

FEATURE = Feature(
    name="console",
    kinds=(console_session.declare,),
    identities=(IDENTITY,),
    documentation="console.md",
)
