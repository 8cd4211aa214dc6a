"""The loop that every runner shares: read a request, generate, answer with times. Runs in the peer's environment."""

import json
import sys
import time


def serve(generate, note=""):
    """`generate(ids, new)` yields once for every token."""
    print(json.dumps({"ready": True, "note": note}), flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        started, times = time.perf_counter(), []
        for _ in generate(request["ids"], request["new"]):
            times.append(time.perf_counter() - started)
        print(json.dumps({"ttft": times[0], "e2e": times[-1], "tokens": len(times)}), flush=True)
