"""The checkpoint of a stack in training: one safetensors file with its facts as JSON and a hash of both in the header.

It exists only while the stack trains: the job that finishes the stack removes it.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import file_error
from ..storage import remove_empty_folder, remove_file, remove_leftovers
from .heartbeats import write_beside_others

if TYPE_CHECKING:
    from ..training import StackCheckpoint, Tensors

NOT_USED = "it is not used: the stack is trained from its first epoch"


def write_checkpoint(path: Path, identity: str, seconds: float, checkpoint: StackCheckpoint) -> None:
    """Write the checkpoint of a stack in place of the one before; a killed process leaves the old or the new."""
    from safetensors.torch import save

    document = json.dumps({"identity": identity, "seconds": seconds, "facts": checkpoint.facts})
    metadata = {"document": document, "sha256": _hash(document, checkpoint.tensors)}
    write_beside_others(path, save(checkpoint.tensors, metadata))


def read_checkpoint(path: Path, identity: str) -> tuple[StackCheckpoint, float]:
    """Read the checkpoint of a stack."""
    from safetensors import SafetensorError, safe_open

    from ..training import StackCheckpoint

    try:
        with safe_open(str(path), framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a dict
        document, stored_hash = metadata["document"], metadata["sha256"]
    except (SafetensorError, OSError, ValueError, KeyError, TypeError) as error:
        raise file_error(path, f"cannot be read ({error})", NOT_USED) from error
    if _hash(document, tensors) != stored_hash:
        raise file_error(path, "is damaged", NOT_USED)
    content: dict[str, Any] = json.loads(document)
    if content["identity"] != identity:
        raise file_error(path, "is of another plan, version or device", NOT_USED)
    return StackCheckpoint(content["facts"], tensors), content["seconds"]


def remove_checkpoint(path: Path) -> None:
    """Remove the checkpoint of a stack that is finished, if there is one, and its folder once that is empty."""
    remove_file(path)
    remove_empty_folder(path.parent)  # unless it holds the checkpoint of another stack


def remove_partial_checkpoints(folder: Path, reserved: bool = True) -> None:
    """Remove what a job left in the folder of checkpoints that was killed while it was writing one."""
    remove_leftovers(folder, reserved=reserved)


def _hash(document: str, tensors: Tensors) -> str:
    """Hash the facts and every tensor with its name, type and shape."""
    import torch

    digest = hashlib.sha256(document.encode())
    for name in sorted(tensors):
        t = tensors[name]
        digest.update(f"{name} {t.dtype} {tuple(t.shape)}".encode())
        digest.update(t.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
