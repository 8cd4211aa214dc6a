"""What start.py shows at the end: a streamed answer, then how fast it was against what this machine's memory allows."""

from __future__ import annotations

from ..errors import TinyserveError

QUESTION = "What is the capital of France, and what is it known for?"


def demo() -> None:
    """A first answer of the default model, and what it cost."""
    from ..bench.roofline import weight_bytes
    from ..text.params import SamplingParams
    from .answers import load
    from .options import print_rows

    llm, asked = load("smollm2"), [{"role": "user", "content": QUESTION}]
    llm.chat(asked, SamplingParams(temperature=0, max_tokens=2))  # the first answer of a process reads the weights from the disk
    print(f"\n> {QUESTION}")
    with llm.stream(asked, SamplingParams(temperature=0, max_tokens=96)) as stream:
        for output in stream:
            print(output.outputs[0].text, end="", flush=True)
    print("\n")
    metrics, size, bandwidth = output.metrics, weight_bytes(llm), llm.engine.ops.read_bandwidth()
    if metrics is None or metrics.tpot is None:
        raise TinyserveError("The demo's answer ended before its second token; run `tinyserve doctor` and see what it says.")
    rows = [
        ("time to first token (TTFT)", f"{metrics.ttft * 1e3:.0f} ms"),
        ("time per output token (TPOT)", f"{metrics.tpot * 1e3:.2f} ms"),
        ("tokens a second", f"{1 / metrics.tpot:.0f}"),
        ("weights read for each token", f"{size / 1e6:.0f} MB"),
        ("this machine reads at most", f"{bandwidth / 1e9:.1f} GB/s"),
        ("share of that limit reached", f"{size / metrics.tpot / bandwidth:.0%}")]
    print_rows([{"this answer": name, llm.engine.ops.name: value} for name, value in rows])
