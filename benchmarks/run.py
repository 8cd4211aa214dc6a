"""Every CPU record of the project in one command: `.venv/bin/python benchmarks/run.py [--peers] [name ...]`.

Nothing else should run meanwhile. With --peers, the peers whose environments are made (`tinyserve bench peers --make NAME`) are measured
too. Records go to benchmarks/records, the README is brought up to them, and the last lines compare them with the targets.
"""

import sys

import ladder

from tinyserve import LLM
from tinyserve.bench import targets
from tinyserve.bench.latency import bench_latency
from tinyserve.bench.peers.compare import bench_peers
from tinyserve.bench.roofline import bench_roofline
from tinyserve.bench.startup import bench_startup
from tinyserve.bench.steps import bench_context, bench_kv, bench_steps
from tinyserve.models.catalog import fetch

BENCHES = {"roofline": bench_roofline, "steps": bench_steps, "context": bench_context, "kv": bench_kv, "latency": bench_latency}


def main(arguments: list[str]) -> None:
    """Run the named benches, or all of them."""
    peers = "--peers" in arguments
    names = [name for name in arguments if name != "--peers"] or [*BENCHES, "startup"]
    llm = LLM("smollm2")
    for name in names:
        record = bench_startup() if name == "startup" else BENCHES[name](llm)
        print(name, record.save(), flush=True)
    if peers:
        print("peers", bench_peers(llm, fetch("smollm2")).save(), flush=True)
    ladder.update()
    for line in targets.report():
        print(line)


if __name__ == "__main__":
    main(sys.argv[1:])
