"""Times one peer's calls in the interpreter that runs this file; needs nothing but the peer.

``python worker.py <file in calls> <folder to write in> <seconds>`` prints the microseconds of each call, as JSON.
"""

import importlib.util
import json
import sys
import time
import warnings

ARGUMENTS = {"to": "acct-17", "amount": 12.5, "currency": "EUR", "url": "https://api.test/pay", "items": [{"sku": "A"}]}


def main():
    path, folder, seconds = sys.argv[1], sys.argv[2], float(sys.argv[3])
    warnings.simplefilter("ignore")
    spec = importlib.util.spec_from_file_location("peer", path)
    peer = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(peer)
    call = peer.make(folder, ARGUMENTS)
    until = time.perf_counter() + seconds / 5
    while time.perf_counter() < until or call() != "paid":  # warms up, and sees that the tool runs
        pass
    times = []
    until = time.perf_counter() + seconds
    while (start := time.perf_counter()) < until:
        call()
        times.append((time.perf_counter() - start) * 1e6)
    json.dump(times, sys.stdout)


if __name__ == "__main__":
    main()
