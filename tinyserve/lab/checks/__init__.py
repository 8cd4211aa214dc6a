"""Exercise checks, a module a chapter: `checks.ch02.store(my_store)` says whether it is right, and if not, what broke."""

from . import ch00, ch01, ch02, ch04
from .judge import Verdict

__all__ = ["Verdict", "ch00", "ch01", "ch02", "ch04"]
