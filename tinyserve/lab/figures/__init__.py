"""Pictures made by code: plain functions that return an image with alternative text. A module a subject."""

from .attention import attention_bytes, nibble_word, running_softmax, split_schedule, tile_walk
from .cache import cache_layout, cache_memory, cost_without_cache
from .passes import pass_cost, roofline, token_pieces
from .timeline import request_timeline, weight_bytes

__all__ = ["attention_bytes", "cache_layout", "cache_memory", "cost_without_cache", "nibble_word", "pass_cost", "request_timeline",
           "roofline", "running_softmax", "split_schedule", "tile_walk", "token_pieces", "weight_bytes"]
