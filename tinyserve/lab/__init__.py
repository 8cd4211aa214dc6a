"""What a notebook needs besides the engine: the set-up cell, predictions, pictures, widgets, exercise checks, live source.

The only room that may import Jupyter or matplotlib.
"""

from . import checks, figures
from .gpu import gpu_ladder
from .predictions import explain, predict
from .race import race
from .records import record
from .session import setup, sizes
from .source import show_source
from .table import table
from .widgets import slider

__all__ = ["checks", "explain", "figures", "gpu_ladder", "predict", "race", "record", "setup", "show_source", "sizes", "slider", "table"]
