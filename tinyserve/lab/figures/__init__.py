"""Pictures made by code: plain functions that return an image with alternative text. A module a subject."""

from .attention import attention_bytes, nibble_word, running_softmax, split_schedule, tile_walk
from .cache import cache_layout, cache_memory, cost_without_cache
from .passes import pass_cost, roofline, token_pieces
from .steps import kernel_step
from .timeline import request_timeline, weight_bytes
from .warps import banks, fragments, product_tiles, thread_map, warp_request

__all__ = ["attention_bytes", "banks", "cache_layout", "cache_memory", "cost_without_cache", "fragments", "kernel_step",
           "nibble_word", "pass_cost", "product_tiles", "request_timeline", "roofline", "running_softmax", "split_schedule",
           "thread_map", "tile_walk", "token_pieces", "warp_request", "weight_bytes"]
