"""The messages of TaskD's network, as protobuf bytes.

    Position     role=1 serverRank=2 processRank=3
    RegisterReq  uuid=1 pos=2
    PathDiscoveryReq  uuid=1 proxyPos=2 path=3 (repeated)
    MessageHeader  uuid=1 mtype=2 sync=3 src=4 dst=5 createTime=6
    Message      header=1 body=2
    Ack          uuid=1 code=2 src=3
"""

import json
import struct


class Wrong(ValueError):
    """The bytes are no message."""


def varint(value):
    """Returns an unsigned number as a varint."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def field(number, value):
    """Returns a field: text, bytes of a message, or a whole number; nothing for the
    default."""
    if isinstance(value, str):
        value = value.encode("utf-8")
    if isinstance(value, bytes):
        return varint(number << 3 | 2) + varint(len(value)) + value if value else b""
    return varint(number << 3) + varint(int(value)) if value else b""


def fields(data):
    """Returns {number: [values]}; a value is bytes or a number. Raises Wrong."""
    found, at = {}, 0
    while at < len(data):
        key, at = _varint(data, at)
        wire = key & 7
        if wire == 0:
            value, at = _varint(data, at)
        elif wire == 2:
            size, at = _varint(data, at)
            if size > len(data) - at:
                raise Wrong("a field is cut off")
            value, at = bytes(data[at:at + size]), at + size
        elif wire in (1, 5):
            size = 8 if wire == 1 else 4
            if size > len(data) - at:
                raise Wrong("a field is cut off")
            value, at = struct.unpack_from("<Q" if size == 8 else "<I", data, at)[0], at + size
        else:
            raise Wrong("wire type %d" % wire)
        found.setdefault(key >> 3, []).append(value)
    return found


def _varint(data, at):
    value = shift = 0
    while True:
        if at >= len(data) or shift > 63:
            raise Wrong("a number is cut off")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, at


def text(found, number):
    """Returns a text field, "" when it is not there."""
    value = found.get(number, [b""])[-1]
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else ""


def number(found, which):
    """Returns a number field, 0 when it is not there."""
    value = found.get(which, [0])[-1]
    return value if isinstance(value, int) else 0


def inner(found, which):
    """Returns the fields of a message field."""
    value = found.get(which, [b""])[-1]
    return fields(value if isinstance(value, bytes) else b"")


def position(role, server, process):
    """Returns a Position."""
    return field(1, role) + field(2, str(server)) + field(3, str(process))


def register(uuid, pos):
    """Returns a RegisterReq."""
    return field(1, uuid) + field(2, pos)


def path_discovery(uuid, pos):
    """Returns a PathDiscoveryReq that begins its path here."""
    return field(1, uuid) + field(2, pos) + field(3, pos)


def message(uuid, src, dst, kind, code):
    """Returns a Message to be acknowledged, with TaskD's JSON body."""
    body = json.dumps({"msg_type": kind, "code": code, "message": "", "extension": {}}, separators=(",", ":"))
    header = field(1, uuid) + field(2, "default") + field(3, 1) + field(4, src) + field(5, dst)
    return field(1, header) + field(2, body)


def ack(uuid, code, src):
    """Returns an Ack."""
    return field(1, uuid) + field(2, code) + field(3, src)
