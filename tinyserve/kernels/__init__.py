"""The op set and its implementations. Arrays in, arrays out: nothing here knows a model or a cache."""

from .selection import overridden, select, use

__all__ = ["overridden", "select", "use"]
