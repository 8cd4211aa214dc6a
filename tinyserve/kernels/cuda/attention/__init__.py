"""Attention, from the plain form to the paged op of the engine.

`naive` writes the scores to memory; `online` needs none; `one_warp` finds its keys by a block table; `flash` works on tiles with
tensor cores over the paged cache; `decode` splits a long context over CTAs and merges. `paged` is the op: it plans which of them
serves which sequence.
"""
