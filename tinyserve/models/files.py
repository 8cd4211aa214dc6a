"""Where a model's files are: a catalog name, a GGUF file, a Hugging Face folder or a hub id."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from ..errors import CorruptCheckpoint, DownloadFailed, ModelNotFound
from . import catalog
from .gguf_file import GgufFile


@dataclass(frozen=True)
class ModelFiles:
    """A model on disk: `kind` "gguf" (path is the file) or "hf" (path is the folder)."""

    kind: str
    path: Path
    name: str

    @cached_property
    def gguf(self) -> GgufFile:
        """The opened file of a "gguf" model."""
        return GgufFile(self.path)

    def json(self, file: str) -> Mapping[str, Any]:
        """A JSON file of a "hf" folder; {} where there is none."""
        path = self.path / file
        if self.kind != "hf" or not path.exists():
            return {}
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
        except (ValueError, OSError) as problem:
            raise CorruptCheckpoint(f"{path} is not readable JSON: {problem}.") from None
        if not isinstance(content, dict):
            raise CorruptCheckpoint(f"{path} holds {type(content).__name__}, not a JSON object.")
        return content


def resolve(model: str | Path) -> ModelFiles:
    """Find a model: a name of the catalog ("smollm2"), a .gguf file, a Hugging Face folder, or a hub id ("owner/name")."""
    name = str(model)
    if name in catalog.CATALOG:
        return ModelFiles("gguf", catalog.fetch(name), name)
    path = Path(model).expanduser()
    if name and path.is_file():
        if path.suffix != ".gguf":
            raise ModelNotFound(f"{path} is not a .gguf file; give a GGUF file or the folder of a Hugging Face model.")
        return ModelFiles("gguf", path, path.stem)
    if name and path.is_dir():
        if not (path / "config.json").exists():
            raise ModelNotFound(f"{path} has no config.json; give the folder of a Hugging Face model.")
        return ModelFiles("hf", path, path.name)
    if name.count("/") == 1 and not name.startswith((".", "/", "~")):
        return ModelFiles("hf", _from_hub(name), name)
    raise ModelNotFound(f"There is no model {name!r}: it is not in the catalog ({', '.join(catalog.CATALOG)}), not a file or "
                        "folder here, and not a hub id of the form owner/name.")


def _from_hub(name: str) -> Path:
    try:
        from huggingface_hub import snapshot_download
        from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, RepositoryNotFoundError

        wanted = ["*.json", "*.safetensors", "*.model", "*.txt", "*.jinja"]
        try:
            return Path(snapshot_download(name, allow_patterns=wanted))
        except RepositoryNotFoundError:
            raise ModelNotFound(f"The hub has no model {name!r} that you may read; check the name, or log in.") from None
        except HFValidationError:
            raise ModelNotFound(f"{name!r} is neither a file or folder here nor a hub id of the form owner/name.") from None
        except (HfHubHTTPError, LocalEntryNotFoundError, OSError) as problem:
            reason = str(problem).splitlines()[0] if str(problem) else type(problem).__name__
            raise DownloadFailed(
                f"{name!r} could not be fetched from the hub ({reason}). With a network, `hf download {name}` fetches it; "
                "without one, copy the model's folder (config.json, *.safetensors, tokenizer.json) here and give its path.") from None
    except ImportError:
        raise DownloadFailed("Fetching from the hub needs the package huggingface_hub.") from None
