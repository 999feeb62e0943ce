"""The figures to reach, as ratios to the reference or in units, and the budgets of calls.

The reference is the Kubernetes API server with etcd. Its rates depend on the machine, so a ratio
means something only when both servers were measured in one run: `python -m benchmarks.compare
--url ... --pids ...`.
"""

RATIOS = {  # times the rate of the reference
    "get": 8.0,
    "get-varied": 6.0,
    "list500": 14.0,
    "selfsubjectreview": 8.0,
    "tokenreview": 6.0,
    "tokenreview-varied": 5.0,
    "tokenrequest": 5.0,
    "create": 5.0,
    "csr-create": 3.0,
    "csr-create-many": 2.3,
}

RATIOS_ON_ETCD = {  # the same, both on etcd
    "get": 8.0,
    "get-varied": 5.0,
    "tokenreview": 6.0,
    "tokenreview-varied": 4.0,
    "tokenrequest": 4.7,
    "create": 2.5,
    "csr-create-many": 1.6,
}

AT_LEAST = {"csr-issue": 600.0, "csr-policy": 250.0}  # certificates per second
AT_MOST = {
    "cold-start": 0.6,  # seconds
    "memory": 77.0,  # MB with 11,000 objects: an eighth of the reference's
    "watch-memory": 30.0,  # KiB for each of 1,000 watches
    "watch-fanout": 40.0,  # ms until an event has reached 1,000 watches
}

# Calls of Python functions per request: at most this many, and the aim. With one connection, a
# request pays alone for the stages of its turn (about 20 calls), and for waiting for signatures.
CALLS = {
    "livez": (40, 25),
    "get": (70, 35),
    "list500": (85, 45),
    "selfsubjectreview": (75, 50),
    "tokenreview": (90, 60),
    "cluster-review": (75, 50),
    "tokenrequest": (155, 80),
    "create": (170, 100),
    "csr-create": (200, 100),
}
