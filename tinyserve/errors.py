"""What can go wrong, as types. Every message is one sentence for the reader who caused it: what is wrong, and what to do."""


class TinyserveError(Exception):
    """The base of every error that tinyserve raises on purpose; the CLI prints it as one line and exits with 2."""


class InvalidRequest(TinyserveError, ValueError):
    """A request or a parameter that cannot be served as asked."""


class ModelNotFound(TinyserveError, FileNotFoundError):
    """No such model in the catalog, on disk or on the hub."""


class DownloadFailed(TinyserveError, OSError):
    """A file could not be fetched, or what arrived is not what was promised."""


class CorruptCheckpoint(TinyserveError, ValueError):
    """A checkpoint that is truncated, contradicts itself, or holds values that no model can have."""


class UnsupportedModel(TinyserveError, NotImplementedError):
    """An architecture, tensor type or feature that tinyserve does not implement."""
