"""The bytes of schemas/FORMAT.md section 2, and how files of them are made.

Invariant: a file is allocated and touched before anything is written to it, so
that a tmpfs which fills up later can't raise SIGBUS in the trainer, and it gets
its final name only when it is complete.
"""

import mmap
import os
import platform
import struct
import sys
import zlib

# The numbers below are part of the format: none is changed or reused.
PROCESS_MAGIC = b"LAGPROC1"
RING_MAGIC = b"LAGRING1"
VERSION = 1
CHECKSUM = 2  # CRC-32 of zlib: what Python has without a compiler
CRC32C = 1    # of the rings that the extension writes
# Of the rings that Python writes: where stores are seen in their order a slot is whole
# before its head is, the checksum guards against wild stores, and Adler-32 does at a
# third of the price. Elsewhere it has to tell a slot that is not all there yet.
IN_ORDER = platform.machine() in ("x86_64", "AMD64")
SLOT_CHECKSUM = 3 if IN_ORDER else CHECKSUM
slot_checksum = zlib.adler32 if IN_ORDER else zlib.crc32

PROCESS_HEADER = 4096
STRINGS = 262144
PROCESS_SIZE = PROCESS_HEADER + STRINGS

RING_HEADER = 8192
SLOT = 64
LIGHT_SLOTS = 1024
BULK_SLOTS = 32768
LEAST_SLOTS = 64
RING_SIZES = (4, BULK_SLOTS), (8, 8192), (16, 4096), (32, 1024), (64, 512)  # last ring of a size, bulk slots
BUDGET = 16 << 20  # bytes of all files of one process
USER_BYTES, USER_FOLDERS = 256 << 20, 1024  # of one user's processes in a run directory

OPEN_TABLE = 1024
OPEN_LEVELS = 64

LIVE = 1
CLOSED = 2

# Kinds by number; OTHER carries its own word.
OTHER, STEP, FP, COMMUNICATION, SAVE_CHECKPOINT, DATA_LOADER = range(6)
KINDS = {"Step": STEP, "FP": FP, "Communication": COMMUNICATION,
         "SaveCheckpoint": SAVE_CHECKPOINT, "DataLoader": DATA_LOADER}

# Flags of a slot.
OPEN, DEVICE, HOST_TIMES, EXPOSED = 1, 2, 4, 8

# Bits of the switch word.
LIGHT_ON = 1
COMMUNICATION_ON = 2

NO_STEP = 0xFFFFFFFF

# Bytes 4 to 63 of a slot: kind, flags, dtype and state in one word; seq; peer;
# start; dur; host_start or exposed; host_dur with the text's id; step; group with
# the stream; value. Native byte order is little-endian (checked in recorder).
BODY = struct.Struct("<IIiqqqQIIq")
# A whole slot: the checksum and its body.
FRAME = struct.Struct("<I60s")

DTYPES = {
    "int8": 1, "int16": 2, "int32": 3, "int64": 4, "uint8": 5, "uint16": 6, "uint32": 7,
    "uint64": 8, "fp16": 9, "fp32": 10, "fp64": 11, "bf16": 12, "bool": 13, "fp8": 14,
    "complex64": 15, "complex128": 16,
    # How torch, numpy and MindSpore spell them.
    "float16": 9, "half": 9, "float32": 10, "float": 10, "float64": 11, "double": 11,
    "bfloat16": 12, "bfp16": 12, "short": 2, "int": 3, "long": 4, "byte": 5, "char": 1,
    "cfloat": 15, "cdouble": 16,
}

LITTLE_ENDIAN = sys.byteorder == "little"


def dtype_code(name):
    """Returns the code of an element type in any spelling, 0 when unknown."""
    word = str(name).rsplit(".", 1)[-1].lower()
    code = DTYPES.get(word, 0)
    if code == 0 and word.startswith("float8"):
        return 14
    return code


def checksum(data):
    """Returns the checksum of bytes as the files hold it."""
    return zlib.crc32(data)


def allocate(directory, name, size):
    """Makes a new file of size bytes in a directory, allocated and touched, and maps it.

    Returns (descriptor, mmap). Raises OSError when there is no room for it.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
    fd = os.open(name, flags, 0o660, dir_fd=directory)
    try:
        os.fchmod(fd, 0o660)
        os.posix_fallocate(fd, 0, size)
        mapping = mmap.mmap(fd, size, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
        mapping[0:size] = bytes(size)
    except BaseException:
        os.close(fd)
        os.unlink(name, dir_fd=directory)
        raise
    return fd, mapping


def open_slot(level):
    """Returns where a slot of the open table is in a ring file."""
    return OPEN_TABLE + SLOT * level


def ring_size(light, bulk):
    """Returns the bytes of a ring file with so many slots."""
    return RING_HEADER + SLOT * (light + bulk)


def fit(number, left):
    """Returns (light, bulk) slots of the number-th ring (from 1) of a process
    that has left bytes of its budget, or None when it doesn't fit."""
    for last, bulk in RING_SIZES:
        if number <= last:
            break
    else:
        bulk = LEAST_SLOTS
    light = max(bulk * LIGHT_SLOTS // BULK_SLOTS, LEAST_SLOTS)
    return (light, bulk) if ring_size(light, bulk) <= left else None
