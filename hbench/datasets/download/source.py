"""Defines a file to fetch, apart from the fetching, which loads heavy libraries."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class RemoteFile:
    """One file to fetch: its path in the raw folder, where it is to be had, and what tells that it is whole.

    `urls` are tried in order; `gdrive:ID` is a Google Drive file. `md5_url` is a file that starts with the md5.
    `part` is metadata or images. `unpack` is the folder, in the raw folder, that an archive is unpacked into; None
    for a plain file.
    """

    file: str
    urls: tuple[str, ...]
    size: int | None = None
    md5: str | None = None
    sha256: str | None = None
    md5_url: str | None = None
    part: str = "images"
    unpack: str | None = None
