"""Tensors of a safetensors directory, as float32 arrays."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt
import safetensors

from services.core.errors import InvalidArgument
from services.embed.directory import read_bytes, read_document

Float32Array = npt.NDArray[np.float32]

SINGLE_FILE = "model.safetensors"
SHARD_INDEX = "model.safetensors.index.json"
_NUMPY_TYPES = {"F64": np.float64, "F32": np.float32, "F16": np.float16}


def weight_files(directory: Path) -> list[Path]:
    """Name the safetensors files of ``directory`` in a fixed order; raise ``InvalidArgument`` when there is none."""
    if (directory / SINGLE_FILE).is_file():
        return [directory / SINGLE_FILE]
    index = directory / SHARD_INDEX
    if index.is_file():
        weight_map = read_document(index).get("weight_map", {})
        if not isinstance(weight_map, dict) or not all(isinstance(name, str) for name in weight_map.values()):
            raise InvalidArgument(
                f"{index} does not map tensors to names of files.", remedy="Copy the whole model directory again."
            )
        paths = [directory / name for name in sorted(set(weight_map.values()))]
        missing = [path.name for path in paths if path.parent != directory or not os.path.isfile(path)]
        if paths and not missing:
            return paths
        raise InvalidArgument(
            f"{index} names weight files that are not there: {', '.join(missing)[:200] or 'none at all'}.",
            remedy="Copy the whole model directory again.",
        )
    pickled = " (pytorch_model.bin is there, but it is a pickle and is not read)"
    raise InvalidArgument(
        f"{directory} has no {SINGLE_FILE}{pickled if (directory / 'pytorch_model.bin').exists() else ''}.",
        remedy=f"Provide the weights as {SINGLE_FILE}.",
    )


def load_weights(directory: Path) -> dict[str, Float32Array]:
    """Read every floating-point tensor of ``directory``, converted to float32; integer buffers are left out."""
    weights: dict[str, Float32Array] = {}
    for path in weight_files(directory):
        try:
            tensors = safetensors.deserialize(read_bytes(path))  # type: ignore[no-untyped-call]
        except (OSError, safetensors.SafetensorError) as error:
            raise InvalidArgument(
                f"{path} is not a readable safetensors file: {error}.", remedy="Copy the file again."
            ) from error
        for name, tensor in tensors:
            array = _float32(tensor)
            if array is not None:
                weights[name] = array
    return weights


def _float32(tensor: Mapping[str, object]) -> Float32Array | None:
    kind, shape, data = tensor["dtype"], tensor["shape"], tensor["data"]
    assert isinstance(shape, list)
    assert isinstance(data, bytes | bytearray)
    if kind == "BF16":
        # numpy has no bfloat16: it is the upper half of a float32.
        widened = np.frombuffer(data, dtype="<u2").astype(np.uint32) << 16
        return widened.view(np.float32).reshape(shape)
    if kind in _NUMPY_TYPES:
        return np.frombuffer(data, dtype=_NUMPY_TYPES[str(kind)]).astype(np.float32).reshape(shape)
    return None
