"""Chapter 00: the arithmetic of latency."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from .judge import Verdict, expect, judge


def reference_tpot(e2e: float, ttft: float, tokens: int) -> float:
    """Seconds a token after the first."""
    return (e2e - ttft) / (tokens - 1) if tokens > 1 else 0.0


def tpot(mine: Callable) -> Verdict:
    """Time per output token from e2e, TTFT and the number of output tokens; 0 for a single token."""

    def cases() -> Iterator[Callable]:
        for e2e, ttft, tokens in ((180e-3, 100e-3, 5), (1.0, 0.2, 101), (0.3, 0.3, 1), (7.25, 1.5, 33)):
            yield lambda fn, a=(e2e, ttft, tokens): expect(fn(*a), reference_tpot(*a), f"tpot{a}")

    return judge("tpot", mine, reference_tpot, cases())


def reference_decode_bound(weight_bytes: float, bandwidth: float, batch: int = 1) -> float:
    """Tokens a second: every step reads all weights once and gives `batch` tokens."""
    return batch * bandwidth / weight_bytes


def decode_bound(mine: Callable) -> Verdict:
    """The most tokens a second that memory allows."""

    def cases() -> Iterator[Callable]:
        for weights, bandwidth, batch in ((100e6, 30e9, 1), (96e6, 12e9, 1), (7e9, 4.8e12, 8), (1.0, 3.0, 7)):
            yield lambda fn, a=(weights, bandwidth, batch): expect(fn(*a), reference_decode_bound(*a), f"decode_bound{a}")

    return judge("decode_bound", mine, reference_decode_bound, cases())


def reference_price(dollars_an_hour: float, tokens_a_second: float) -> float:
    """Dollars for a million output tokens."""
    return dollars_an_hour / (3600 * tokens_a_second) * 1e6


def price(mine: Callable) -> Verdict:
    """What a million output tokens cost on a machine rented by the hour."""

    def cases() -> Iterator[Callable]:
        for dollars, speed in ((3.6, 1000.0), (0.1, 200.0), (40.0, 12345.0)):
            yield lambda fn, a=(dollars, speed): expect(fn(*a), reference_price(*a), f"price{a}")

    return judge("price", mine, reference_price, cases())
