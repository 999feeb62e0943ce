"""The recorded cases that are known to fail, and why: the one place that excuses any.

A listed case must fail: once it passes, the test run says so, and its line here goes. Run
scripts/expected-failures to see which of them pass by now.
"""

EXPECTED_FAILURES: dict[str, str] = {}
