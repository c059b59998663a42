"""Some eigenvectors of a symmetric matrix by LAPACK, while other threads run.

SciPy's Python functions hold the interpreter's lock while LAPACK works, so that two threads
take as long as one. The same routines, called through the pointers that SciPy publishes for
Cython, do not.
"""

import ctypes
from functools import cache
from typing import Any

import numpy as np
from jaxtyping import Float
from numpy import ndarray
from scipy.linalg import LinAlgError, cython_lapack

_ROUTINES = {"float32": ("ssyevr", ctypes.c_float), "float64": ("dsyevr", ctypes.c_double)}


def largest_eigenpairs(
    matrix: Float[ndarray, "n n"], count: int
) -> tuple[Float[ndarray, " q"], Float[ndarray, "n q"]]:
    """Return the largest eigenvalues, rising, and their eigenvectors.

    Parameters
    ----------
    matrix : ndarray
        Symmetric, float32 or float64, contiguous. It is overwritten.
    count : int
        How many eigenvalues to find, from 1 to n. Fewer may come back where eigenvalues
        repeat many times, or ``LinAlgError`` is raised.
    """
    n = len(matrix)
    name, number = _ROUTINES[matrix.dtype.name]
    values = np.empty(n, matrix.dtype)
    vectors = np.empty((count, n), matrix.dtype)  # Fortran's columns
    support, found = np.empty(2 * count, np.int32), ctypes.c_int()
    work, whole = np.empty(1, matrix.dtype), np.empty(1, np.int32)
    for sizes in ("asked", "given"):
        if sizes == "given":
            work, whole = np.empty(int(work[0]), matrix.dtype), np.empty(whole[0], np.int32)
        lengths = (-1, -1) if sizes == "asked" else (len(work), len(whole))
        # The upper triangle of Fortran is the lower of C; a symmetric matrix has both.
        state = _call(
            name,
            *(b"V", b"I", b"U", n, matrix, n, number(0), number(0), n - count + 1, n),
            *(number(0), found, values, vectors, n, support),
            *(work, lengths[0], whole, lengths[1]),
        )
        if state != 0:
            raise LinAlgError(f"LAPACK's {name} gave up on a matrix of {n} rows ({state}).")
    return values[: found.value], vectors[: found.value].T


def _call(name: str, *arguments: Any) -> int:
    """Call a routine of LAPACK, all of whose arguments are pointers; return its state."""
    state = ctypes.c_int()
    pointers = []
    for value in (*arguments, state):
        if isinstance(value, ndarray):
            pointers.append(ctypes.c_void_p(value.ctypes.data))
        elif isinstance(value, bytes):
            pointers.append(ctypes.cast(ctypes.c_char_p(value), ctypes.c_void_p))
        else:
            number = ctypes.c_int(value) if isinstance(value, int) else value
            pointers.append(ctypes.cast(ctypes.pointer(number), ctypes.c_void_p))
    _routine(name, len(pointers))(*pointers)
    return state.value


@cache
def _routine(name: str, n_arguments: int) -> Any:
    """Return a routine of LAPACK that releases the interpreter's lock while it runs."""
    capsule = cython_lapack.__pyx_capi__[name]
    name_of = ctypes.pythonapi.PyCapsule_GetName
    name_of.restype, name_of.argtypes = ctypes.c_char_p, [ctypes.py_object]
    pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
    pointer_of.restype = ctypes.c_void_p
    pointer_of.argtypes = [ctypes.py_object, ctypes.c_char_p]
    signature = ctypes.CFUNCTYPE(None, *n_arguments * [ctypes.c_void_p])
    return signature(pointer_of(capsule, name_of(capsule)))
