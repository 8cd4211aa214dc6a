"""The `tinyserve` command: thin commands over the package's own doors. A command imports what it needs when it runs."""

from .main import main

__all__ = ["main"]
