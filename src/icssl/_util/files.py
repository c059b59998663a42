"""Files that are either whole or not there, and tensors in files that have a digest."""

import hashlib
import json
import os
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from shutil import rmtree
from textwrap import shorten
from typing import Any
from uuid import uuid4

import torch
from filelock import FileLock, Timeout
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from icssl._util.errors import DamagedFileError, UnwrittenFileError, reason_of

if sys.platform != "win32":
    import fcntl

DIGEST = "digest"
_ONNX_DIGEST = "icssl-digest"
# Errors that a header without sense can raise on its way to a model.
_SENSELESS = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    RuntimeError,
    StopIteration,
    TypeError,
    ValueError,
)


def cache_folder() -> Path:
    """Return the folder for what can be made again; ``ICSSL_HOME`` moves it."""
    return Path(os.environ.get("ICSSL_HOME", Path.home() / ".cache" / "icssl"))


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Write to a temporary file that replaces ``path`` when all went well.

    It lies beside ``path``. After an error, or a kill at any moment, ``path`` is as it was
    before. What a kill leaves is deleted by the next call for the same path.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    _delete_abandoned(path)
    unfinished, lock_holder = _make_locked_file(path)
    mode = unfinished.stat().st_mode
    try:
        with _naming_the_target(path, unfinished):
            yield unfinished
            unfinished.chmod(mode)  # some writers let nobody else read what they wrote
            sync(unfinished)
            if sys.platform == "win32":
                lock_holder.close()  # there, nobody may move a file that is open
            unfinished.replace(path)
    finally:
        lock_holder.close()
        unfinished.unlink(missing_ok=True)


def sync(path: Path) -> None:
    """Return when all of a file is on the disk."""
    with path.open("rb+") as file:
        os.fsync(file.fileno())


def _make_locked_file(path: Path) -> tuple[Path, FileIO]:
    """Make a temporary file, locked while this process lives and the file is open."""
    while True:
        unfinished = path.with_name(f".{path.name}.{uuid4().hex}{path.suffix}")
        file = FileIO(unfinished, "x+")
        if sys.platform != "win32":
            with suppress(OSError):  # some network disks have no locks
                fcntl.flock(file, fcntl.LOCK_EX)
        if unfinished.exists():
            return unfinished, file
        file.close()  # another process thought it abandoned before it was locked


def _delete_abandoned(path: Path) -> None:
    """Delete temporary files for ``path`` whose process was killed.

    A living process holds a lock on its own files, which the operating system releases when
    the process ends. Windows deletes no file that is open.
    """
    name = re.compile(rf"\.{re.escape(path.name)}\.[0-9a-f]{{32}}{re.escape(path.suffix)}")
    for left in path.parent.iterdir():
        if name.fullmatch(left.name) and left.is_file():
            with suppress(OSError), FileIO(left) as file:
                if sys.platform == "win32":
                    file.close()
                else:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                left.unlink()


@contextmanager
def replacing_folder(path: Path) -> Iterator[Path]:
    """Fill a temporary folder that replaces ``path`` when all went well.

    What a kill leaves is deleted by the next call for the same path. A kill between the two
    moves that replace an older folder leaves that one hidden: it is put back first.
    """
    path = path.absolute()
    path.parent.mkdir(parents=True, exist_ok=True)
    _delete_abandoned_folders(path)
    unfinished = path.with_name(f".{path.name}.{uuid4().hex}")
    lock = FileLock(f"{unfinished}.lock")
    lock.acquire(timeout=10)  # another process may be looking whether it is abandoned
    try:
        unfinished.mkdir()
        yield unfinished
        old = unfinished.with_name(f"{unfinished.name}.old")
        if path.exists():
            path.rename(old)
        unfinished.rename(path)
    finally:
        _delete_folders(unfinished, path)
        lock.release()
        Path(lock.lock_file).unlink(missing_ok=True)


def _delete_abandoned_folders(path: Path) -> None:
    """Delete temporary folders for ``path`` whose process was killed."""
    name = re.compile(rf"\.{re.escape(path.name)}\.[0-9a-f]{{32}}\.lock")
    for file in [left for left in path.parent.iterdir() if name.fullmatch(left.name)]:
        lock = FileLock(file)
        with suppress(Timeout, OSError):  # its process is alive
            lock.acquire(timeout=0)
            _delete_folders(file.with_suffix(""), path)
            lock.release()
            file.unlink(missing_ok=True)


def _delete_folders(unfinished: Path, path: Path) -> None:
    """Delete what is left of a folder that was to take the place of ``path``."""
    old = unfinished.with_name(f"{unfinished.name}.old")
    if old.exists() and not path.exists():
        old.rename(path)
    for folder in (unfinished, old):
        rmtree(folder, ignore_errors=True)


@contextmanager
def _naming_the_target(path: Path, unfinished: Path) -> Iterator[None]:
    """Give errors of the system the name of the file that a person asked for."""
    try:
        yield
    except OSError as error:
        another = error.filename not in (None, str(unfinished))
        if another or isinstance(error, UnwrittenFileError):
            raise
        reason = (error.strerror or reason_of(error)).lower()
        raise UnwrittenFileError(f"{path} could not be written: {reason}.") from error


@dataclass(frozen=True)
class FileKind:
    """A kind of file with tensors.

    Parameters
    ----------
    name : str
        Name under which its header is kept, so that kinds can be told apart.
    made_by : str
        Command that makes such a file, for messages.
    """

    name: str
    made_by: str

    @property
    def remedy(self) -> str:
        """Advice at the end of a message about a file that cannot be used."""
        return f"take a whole copy of it, or make it anew with {self.made_by}"


def write_tensors(
    path: Path, tensors: Mapping[str, Tensor], kind: FileKind, header: Mapping[str, Any]
) -> dict[str, Any]:
    """Write tensors with a header of plain values, as safetensors.

    Returns the header as it was written: with a digest of itself and of the tensors.
    """
    on_cpu = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    full_header = {**header, DIGEST: digest_of(on_cpu, kind, header)}
    with replacing(path) as unfinished:
        try:
            # One key: safetensors keeps several in no fixed order, and equal states must
            # be equal bytes.
            save_file(on_cpu, unfinished, {kind.name: json.dumps(full_header)})
        except SafetensorError as error:  # for example a full disk
            raise OSError(str(error)) from error
    return full_header


def read_tensors(path: Path, kind: FileKind) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return tensors and header of a file that :func:`write_tensors` wrote.

    Another file, or one that is torn, damaged or edited, is refused by its name.
    """
    if path.is_dir():
        raise ValueError(f"{path} is no {kind.name} file but a folder.")
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist.")
    try:
        with safe_open(path, "pt") as file:
            text = (file.metadata() or {}).get(kind.name)
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, *_SENSELESS) as error:
        raise DamagedFileError(
            f"{path} is no {kind.name} file, or a torn one ({reason_of(error)}): "
            f"{kind.remedy}."
        ) from error
    if text is None:
        raise DamagedFileError(
            f"{path} is no {kind.name} file: its header does not say so."
        )
    try:
        header = dict(json.loads(text))
        written_digest = header.pop(DIGEST, None)
        actual_digest = digest_of(tensors, kind, header)
    except _SENSELESS as error:
        raise DamagedFileError(
            f"{path} is damaged (its header is torn: {reason_of(error)}): {kind.remedy}."
        ) from error
    if written_digest is None:
        raise DamagedFileError(
            f"{path} has no digest, as files of icssl now do: {kind.remedy}."
        )
    if written_digest != actual_digest:
        raise DamagedFileError(
            f"{path} is damaged (its digest is not that of what it holds): {kind.remedy}."
        )
    return tensors, header


def digest_of(
    tensors: Mapping[str, Tensor],
    kind: FileKind | None = None,
    header: Mapping[str, Any] | None = None,
) -> str:
    """Return a hash of tensors with their names, types and shapes, and of a header."""
    about = [kind.name if kind else "", header or {}]
    digest = hashlib.sha256(json.dumps(about).encode())
    for name in sorted(tensors):
        tensor = tensors[name].detach().cpu().contiguous()
        shape = [name, str(tensor.dtype), list(tensor.shape)]
        digest.update(json.dumps(shape).encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def as_json(value: Any) -> Any:
    """Return a value as it comes back from a header: its tuples are lists."""
    return json.loads(json.dumps(value))


@contextmanager
def making_sense(path: Path, kind: FileKind) -> Iterator[None]:
    """Turn errors about what a header says into one that names the file.

    The digest of the file is right, so that another version of icssl wrote it.
    """
    try:
        yield
    except _SENSELESS as error:
        # load_state_dict says in its second line what differs.
        reason = " ".join(reason_of(error).split()) or type(error).__name__
        raise DamagedFileError(
            f"{path} holds what this version of icssl does not understand "
            f"({shorten(reason, 200, placeholder=' ...')}): {kind.remedy}."
        ) from error


def check_finite(tensors: Mapping[str, Tensor]) -> None:
    """Raise ``ValueError`` for weights that are not finite numbers."""
    for name, tensor in tensors.items():
        if not bool(tensor.isfinite().all()):
            raise ValueError(f"{name} holds numbers that are not finite")


def write_described(
    path: Path, tensors: Mapping[str, Tensor], kind: FileKind, header: Mapping[str, Any]
) -> None:
    """Write tensors with a header, and the header again as JSON beside it, for people.

    Programs read the header in the file, so that the two cannot disagree.
    """
    full_header = write_tensors(path, tensors, kind, header)
    with replacing(path.with_suffix(".json")) as unfinished:
        unfinished.write_text(json.dumps(full_header, indent=2) + "\n")


def add_onnx_digest(content: bytes) -> bytes:
    """Return an ONNX file with a digest of its content as its last property.

    Protocol buffers that follow each other are read as one, so that what is appended is an
    entry of the model's metadata.
    """
    from onnx import ModelProto

    entry = ModelProto()
    entry.metadata_props.add(key=_ONNX_DIGEST, value=hashlib.sha256(content).hexdigest())
    return content + entry.SerializeToString()


def check_onnx(path: Path | str) -> None:
    """Raise ``DamagedFileError`` for a file that is not as ``to_onnx`` wrote it."""
    content = Path(path).read_bytes()
    if add_onnx_digest(content[: -len(add_onnx_digest(b""))]) != content:
        raise DamagedFileError(
            f"{path} is damaged, or no ONNX file of icssl (it does not end with the digest "
            "of what it holds): take a whole copy of it, or make it anew with icssl export."
        )
