"""A reader of ring folders for the tests: schemas/FORMAT.md section 2, the obvious way."""

import json
import os
import struct
import zlib

KINDS = ["other", "Step", "FP", "Communication", "SaveCheckpoint", "DataLoader"]
DTYPES = ["", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "fp16", "fp32",
          "fp64", "bf16", "bool", "fp8", "complex64", "complex128"]
SLOT = struct.Struct("<IBBBBIiqqqQIHHq")


def _castagnoli():
    table = []
    for n in range(256):
        for _ in range(8):
            n = n >> 1 ^ (0x82F63B78 if n & 1 else 0)
        table.append(n)
    return table


_TABLE = _castagnoli()


def crc32c(data):
    """CRC32C, checksum kind 1; zlib has kind 2."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _TABLE[(crc ^ byte) & 0xFF] ^ crc >> 8
    return crc ^ 0xFFFFFFFF


SUMS = {1: crc32c, 2: zlib.crc32, 3: zlib.adler32}


class Process(object):
    """One folder: identity, strings, rings."""

    def __init__(self, folder):
        self.folder = folder
        with open(os.path.join(folder, "process"), "rb") as f:
            data = f.read()
        assert data[:8] == b"LAGPROC1" and len(data) == 4096 + 262144, (data[:8], len(data))
        (self.version, at, room, self.pid, self.ticks, self.started, self.incarnation, self.namespace,
         boot, self.checksum, self.state, identity) = struct.unpack_from("<IIIIQQQQ36sIII", data, 8)
        assert (self.version, at, room, self.checksum) == (1, 4096, 262144, 2)
        self.boot = boot.decode()
        self.wanted, self.followed, self.followed_at = struct.unpack_from("<IIQ", data, 128)
        used, self.made = struct.unpack_from("<II", data, 192)
        self.lost = struct.unpack_from("<16Q", data, 256)
        self.refused = struct.unpack_from("<Q", data, 384)[0]
        self.strings = [""]
        area = data[4096:4096 + used]
        while area:
            size, crc = struct.unpack_from("<II", area)
            text = area[8:8 + size]
            assert zlib.crc32(text) == crc, "string %d" % len(self.strings)
            self.strings.append(text.decode())
            area = area[8 + (size + 7 & ~7):]
        self.meta = json.loads(self.strings[identity])
        names = [n for n in os.listdir(folder) if n.startswith("ring-")]
        self.rings = [Ring(self, os.path.join(folder, "ring-%d" % n))
                      for n in sorted(int(n[5:]) for n in names)]

    def records(self, kind=None):
        """Returns the published records of all rings by start."""
        found = [r for ring in self.rings for r in ring.records if kind is None or r["kind"] == kind]
        return sorted(found, key=lambda r: r["start"])

    def opened(self):
        """Returns the open ranges, and the closing ones that were not published, by ring and start."""
        return [r for ring in self.rings for r in sorted(ring.open, key=lambda r: r["start"])]


class Ring(object):
    """One ring file."""

    def __init__(self, process, path):
        self.process = process
        with open(path, "rb") as f:
            data = f.read()
        (magic, version, header, checksum, self.number, light, bulk, self.thread,
         self.state) = struct.unpack_from("<8sIIIIIIQI", data)
        assert (magic, version, header) == (b"LAGRING1", 1, 8192)
        self.sum = SUMS[checksum]
        assert len(data) == 8192 + 64 * (light + bulk), path
        self.light, self.bulk = light, bulk
        self.heads = struct.unpack_from("<Q", data, 64)[0], struct.unpack_from("<Q", data, 192)[0]
        self.tails = struct.unpack_from("<Q", data, 128)[0], struct.unpack_from("<Q", data, 256)[0]
        self.dropped = struct.unpack_from("<8Q", data, 320)
        self.emitted = struct.unpack_from("<8Q", data, 448)
        self.records, self.corrupt = [], []
        for lane, slots, base in ((0, light, 8192), (1, bulk, 8192 + 64 * light)):
            first = max(self.tails[lane], self.heads[lane] - slots)
            for seq in range(first, self.heads[lane]):
                at = base + seq % slots * 64
                slot = data[at:at + 64]  # not [at:][:64], which copies the file
                record = decode(process, slot, seq, self.sum)
                if record is None:
                    self.corrupt.append((lane, seq))
                else:
                    record["ring"] = 2 * self.number - 1 + lane
                    self.records.append(record)
        self.open = []
        for level in range(64):
            slot = bytearray(data[1024 + 64 * level:1088 + 64 * level])
            state, seq = slot[7], struct.unpack_from("<I", slot, 8)[0]
            slot[7:12] = bytes(5)
            if state == 0:
                continue
            record = decode(process, bytes(slot), 0, self.sum)
            if record is None:
                self.corrupt.append(("open", level))
            elif state == 1 or seq & 0x7FFFFFFF >= self.heads[seq >> 31] & 0x7FFFFFFF:
                self.open.append(record)


def decode(process, slot, seq, checksum):
    """Returns the record in a slot, None when the checksum or the number is wrong."""
    (crc, kind, flags, dtype, _, low, peer, start, dur, extra, mixed, step, group, stream,
     value) = SLOT.unpack(slot)
    if checksum(slot[4:]) != crc or low != seq & 0xFFFFFFFF:
        return None
    text = process.strings[mixed >> 48]
    record = {"kind": KINDS[kind] if kind else text, "seq": seq, "start": start, "dur": dur, "value": value,
              "step": -1 if step == 0xFFFFFFFF else step, "group": process.strings[group], "peer": peer,
              "dtype": DTYPES[dtype], "stream": stream, "side": "device" if flags & 2 else "host"}
    if kind:
        record["text"] = text
    if flags & 8:
        record["exposed"] = extra
    if flags & 4:
        record["host_start"], record["host_dur"] = extra, mixed & (1 << 48) - 1
    return record


def load(run):
    """Returns the processes of a run folder, by rank and then start."""
    if not os.path.isdir(run):
        return []
    folders = [os.path.join(run, n) for n in os.listdir(run) if not n.startswith(".")]
    return sorted((Process(f) for f in folders), key=lambda p: (p.meta["rank"], p.started))
