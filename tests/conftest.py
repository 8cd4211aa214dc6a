"""Settings that every test shares."""

import os

from hypothesis import settings

settings.register_profile("tinyserve", deadline=None, derandomize=True, max_examples=40)
settings.load_profile("tinyserve")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("MPLBACKEND", "Agg")
