"""Scheduling on the event loop: work that requests share, and work that must not block it.

One process serves thousands of connections on one event loop. A task for each short wait would cost
as much as the rest of a read, and one long callback delays everybody. So there are six classes:

| Class         | Purpose                                                                        |
|---------------|--------------------------------------------------------------------------------|
| SharedResult  | many coroutines wait for one result, without a task for each                   |
| SharedCall    | one call at a time for all who ask; each gets a result newer than its question |
| BatchedWork   | short work of many requests, done one after the other while its code is cached |
| StepQueue     | long work in steps: a few in each iteration of the event loop, in order        |
| Seat          | the place of a request among those processed at the same time                  |
| Offload       | expensive work in a few threads, shared fairly between callers                 |

Nothing is cached here and nothing decided: the first two share a wait, the others choose a time.

**Without a task.** The listener runs a handler without a task until it really waits
(kernel/http/messages.py). A coroutine without a task that awaits a `SharedResult` yields that
object to its driver, which adds a `Step` to it; all steps run together when the result is there.
In a task, a `SharedResult` is awaited like a future. `SharedCall` and `BatchedWork` return results
in this way, so they need no task for each caller either.

**Limits of one iteration.** BatchedWork does at most 32 pieces of work, and begins none after 5 ms;
a StepQueue has the number of steps that its owner sets. The rest waits for the next iteration,
after the loop has served its sockets.
"""
