"""Pictures made by code: plain functions that return an image with alternative text. A module a subject."""

from .cache import cache_layout, cache_memory, cost_without_cache
from .passes import pass_cost, roofline, token_pieces
from .timeline import request_timeline, weight_bytes

__all__ = ["cache_layout", "cache_memory", "cost_without_cache", "pass_cost", "request_timeline", "roofline", "token_pieces",
           "weight_bytes"]
