"""Writers of every format that embedding files come in, made with the libraries people make them
with.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import safetensors.numpy
import torch

Write = Callable[[Path, Sequence[str], np.ndarray[Any, Any]], Path]


def npz(folder, ids, vectors):
    np.savez(folder / "emb.npz", ids=np.array(ids, dtype=str), vectors=vectors)
    return folder / "emb.npz"


def npz_compressed(folder, ids, vectors):
    np.savez_compressed(folder / "emb.npz", ids=np.array(ids, dtype=str), embeddings=vectors)
    return folder / "emb.npz"


def npz_bytes(folder, ids, vectors):
    np.savez(folder / "emb.npz", ids=np.array([name.encode() for name in ids]), embeddings=vectors)
    return folder / "emb.npz"


def npy(folder, vectors):
    np.save(folder / "emb.npy", vectors)
    return folder / "emb.npy"


def npy_txt(folder, ids, vectors):
    (folder / "emb.ids.txt").write_text("".join(f"{name}\n" for name in ids), encoding="utf-8")
    return npy(folder, vectors)


def npy_csv(folder, ids, vectors):
    with (folder / "emb_ids.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([["split", "id"], *(["test", name] for name in ids)])
    return npy(folder, vectors)


def npy_json(folder, ids, vectors):
    (folder / "ids.json").write_text(json.dumps(list(ids)), encoding="utf-8")
    return npy(folder, vectors)


def npy_npy(folder, ids, vectors):
    np.save(folder / "emb.ids.npy", np.array(ids, dtype=str))
    return npy(folder, vectors)


def npy_parquet(folder, ids, vectors):
    pq.write_table(pa.table({"id": pa.array(list(ids), pa.string())}), folder / "ids.parquet")
    return npy(folder, vectors)


def npy_fortran(folder, ids, vectors):
    return npy_txt(folder, ids, np.asfortranarray(vectors))


def fixed(vectors):
    return pa.FixedSizeListArray.from_arrays(
        pa.array(np.ascontiguousarray(vectors).ravel()), vectors.shape[1]
    )


def table(ids, vectors, column=fixed):
    names = pa.array(list(ids), pa.string())
    return pa.table(
        {"label": pa.array([0] * len(names)), "id": names, "embedding": column(vectors)}
    )


def parquet(folder, ids, vectors):
    pq.write_table(table(ids, vectors), folder / "emb.parquet", row_group_size=3)
    return folder / "emb.parquet"


def parquet_lists(folder, ids, vectors):
    kind = pa.list_(pa.from_numpy_dtype(vectors.dtype))
    pq.write_table(
        table(ids, vectors, lambda rows: pa.array(list(rows), kind)), folder / "emb.parquet"
    )
    return folder / "emb.parquet"


def parquet_parts(folder, ids, vectors):
    parts = folder / "emb"
    parts.mkdir()
    for number, rows in enumerate(np.array_split(np.arange(len(ids)), 3)):
        part = table([ids[row] for row in rows], vectors[rows])
        pq.write_table(part, parts / f"part-{number:05}.parquet")
    return parts


def safetensors_metadata(folder, ids, vectors):
    metadata = {"ids": json.dumps(list(ids))}
    safetensors.numpy.save_file(
        {"embeddings": vectors, "other": np.zeros(3)}, folder / "emb.safetensors", metadata
    )
    return folder / "emb.safetensors"


def safetensors_txt(folder, ids, vectors):
    (folder / "emb.ids.txt").write_bytes("".join(f"{name}\r\n" for name in ids).encode("utf-8-sig"))
    safetensors.numpy.save_file({"embeddings": vectors}, folder / "emb.safetensors")
    return folder / "emb.safetensors"


def arrow_file(folder, ids, vectors):
    rows = table(ids, vectors)
    with (
        pa.OSFile(str(folder / "emb.arrow"), "wb") as sink,
        pa.ipc.new_file(sink, rows.schema) as writer,
    ):
        writer.write_table(rows)
    return folder / "emb.arrow"


def arrow_batches(folder, ids, vectors):
    rows = table(ids, vectors)
    with (
        pa.OSFile(str(folder / "emb.arrow"), "wb") as sink,
        pa.ipc.new_file(sink, rows.schema) as writer,
    ):
        writer.write_table(rows, max_chunksize=2)
    return folder / "emb.arrow"


def arrow_stream(folder, ids, vectors):
    rows = table(ids, vectors)
    with (
        pa.OSFile(str(folder / "emb.ipc"), "wb") as sink,
        pa.ipc.new_stream(sink, rows.schema) as writer,
    ):
        writer.write_table(rows, max_chunksize=2)
    return folder / "emb.ipc"


def feather(folder, ids, vectors):
    pyarrow.feather.write_feather(
        table(ids, vectors), folder / "emb.feather", compression="lz4", chunksize=3
    )
    return folder / "emb.feather"


def saved_dataset(folder, ids, vectors):
    """What Hugging Face's `Dataset.save_to_disk` leaves: streams, a state that names them, and
    caches beside them.
    """
    saved = folder / "saved"
    saved.mkdir()
    names = []
    for number, rows in enumerate(np.array_split(np.arange(len(ids)), 2)):
        names.append({"filename": f"data-{number:05}-of-00002.arrow"})
        part = table([ids[row] for row in rows], vectors[rows])
        with (
            pa.OSFile(str(saved / names[-1]["filename"]), "wb") as sink,
            pa.ipc.new_stream(sink, part.schema) as writer,
        ):
            writer.write_table(part)
    (saved / "cache-0123456789abcdef.arrow").write_bytes(b"of an earlier map()")
    (saved / "state.json").write_text(json.dumps({"_data_files": names, "_split": "test"}))
    return saved


def torch_dict(folder, ids, vectors):
    torch.save(
        {"ids": list(ids), "embeddings": torch.from_numpy(vectors.copy())}, folder / "emb.pt"
    )
    return folder / "emb.pt"


FORMATS: list[Write] = [
    npz, npz_compressed, npz_bytes, npy_txt, npy_csv, npy_json, npy_npy, npy_parquet, npy_fortran,
    parquet, parquet_lists, parquet_parts, safetensors_metadata, safetensors_txt,
    arrow_file, arrow_batches, arrow_stream, feather, saved_dataset, torch_dict,
]  # fmt: skip
MAPPED: list[Write] = [npz, npy_txt, npy_fortran, safetensors_metadata, arrow_file]
