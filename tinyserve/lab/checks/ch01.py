"""Chapter 01: from a prompt to tokens."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from .judge import Verdict, Wrong, expect, judge


def reference_greedy(logits: np.ndarray) -> int:
    """The lowest id of the largest logit."""
    return int(np.argmax(logits))


def greedy(mine: Callable) -> Verdict:
    """The most likely token; of equals the lowest id."""

    def case(logits: np.ndarray) -> Callable:
        return lambda fn: expect(fn(logits.copy()), reference_greedy(logits), f"greedy of {len(logits)} logits", 0)

    def cases() -> Iterator[Callable]:
        rng = np.random.default_rng(1)
        for size in (1, 2, 37, 1001):
            yield case(rng.standard_normal(size).astype(np.float32))
        yield case(np.array([1, 5, 2, 5, 5], np.float32))
        yield case(np.full(7, -3.5, np.float32))

    return judge("greedy", mine, reference_greedy, cases())


def reference_itl(times: Sequence[float]) -> list[float]:
    """Gaps between consecutive tokens."""
    return [later - earlier for earlier, later in zip(times, times[1:])]


def itl(mine: Callable) -> Verdict:
    """Inter-token latencies from the times at which tokens came; the wait for the first is TTFT and does not count."""

    def cases() -> Iterator[Callable]:
        for times in ([0.1, 0.14, 0.18], [0.5], [0.2, 0.2, 0.9, 1.0]):
            yield lambda fn, t=times: expect(fn(list(t)), reference_itl(t), f"itl({t})")

    return judge("itl", mine, reference_itl, cases())


def reference_intensity(tokens: int, weight_bits: float) -> float:
    """Operations a byte: two for every weight and token, and every weight is read once."""
    return 2 * tokens / (weight_bits / 8)


def intensity(mine: Callable) -> Verdict:
    """Arithmetic intensity of a pass of `tokens` tokens over weights of `weight_bits` bits."""

    def cases() -> Iterator[Callable]:
        for tokens, bits in ((1, 32), (1, 16), (1, 4), (512, 5), (8, 8)):
            yield lambda fn, a=(tokens, bits): expect(fn(*a), reference_intensity(*a), f"intensity{a}")

    return judge("intensity", mine, reference_intensity, cases())


def reference_ids_of(token_bytes: Sequence[bytes], text: bytes) -> list[int]:
    """Greedy longest match: ids of the pieces of `text`."""
    ids, at = [], 0
    while at < len(text):
        best = max((i for i, piece in enumerate(token_bytes) if piece and text.startswith(piece, at)), key=lambda i: len(token_bytes[i]))
        ids.append(best)
        at += len(token_bytes[best])
    return ids


def ids_of(mine: Callable) -> Verdict:
    """A toy tokenizer: at each place take the longest token that fits. Joining the pieces must give the text back."""
    vocabulary = [b"t", b"h", b"e", b" ", b"th", b"the", b" the", b"\xc3", b"\xa9"]

    def case(text: bytes) -> Callable:
        def run(fn: Callable) -> None:
            ids = fn(vocabulary, text)
            expect(len(text), len(text), "text")
            if not isinstance(ids, (list, tuple)) or b"".join(vocabulary[i] for i in ids) != text:
                raise Wrong(f"ids_of: the pieces do not join to {text!r}.")
            expect(ids, reference_ids_of(vocabulary, text), f"ids_of({text!r})", 0)
        return run

    return judge("ids_of", mine, reference_ids_of, [case(text) for text in (b"the", b"the the", b"hhhe", b"", "thé".encode())])
