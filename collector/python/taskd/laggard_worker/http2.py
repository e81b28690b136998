"""As much gRPC as a worker needs, on the standard library: unary calls and one stream
at a time over a plain connection, all in the thread that uses it.

Headers that the server sends are not decoded: an answer is a call that brought a
message, a failure is one that ended without. What the server sends is bounded.
"""

import select
import socket
import struct
import time

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = 0, 1, 3, 4, 6, 7, 8, 9
END_STREAM, END_HEADERS, PADDED, ACK = 1, 4, 8, 1
MESSAGE_LIMIT = 4 << 20  # bytes
FRAME_LIMIT = 16384
WINDOW = 1 << 20


class Broken(OSError):
    """The connection, or a call on it, is over."""


def _literal(name, value):
    """Returns a header as a literal that nobody remembers."""
    out = b"\x00"
    for part in (name.encode("ascii"), value.encode("ascii", "replace")):
        out += _integer(len(part)) + part
    return out


def _integer(value):
    if value < 127:
        return bytes((value,))
    out, value = bytearray((127,)), value - 127
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


class Stream(object):
    """One call."""

    def __init__(self, number, window):
        self.number = number
        self.window = window  # what may still be sent
        self.messages = []
        self.ended = False
        self.rest = b""

    def take(self, data):
        """Cuts messages out of what came."""
        self.rest += data
        while len(self.rest) >= 5:
            compressed, size = struct.unpack_from(">BI", self.rest)
            if compressed or size > MESSAGE_LIMIT:
                raise Broken("a message of %d bytes" % size)
            if len(self.rest) < 5 + size:
                return
            self.messages.append(self.rest[5:5 + size])
            self.rest = self.rest[5 + size:]


class Connection(object):
    """A connection to a gRPC server."""

    def __init__(self, host, port, timeout):
        self.host = host if port is None else "%s:%d" % (host, port)
        self.socket = socket.create_connection((host, port), timeout)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.streams = {}
        self.next = 1
        self.window = self.stream_window = 65535
        self.input = b""
        self.refuses = False  # the server said that it takes no more calls
        # No pushes, and no table of headers that we would have to keep.
        self._write(PREFACE + self._frame(SETTINGS, 0, 0, struct.pack(">HIHIHI", 2, 0, 1, 0, 4, WINDOW)) +
                    self._frame(WINDOW_UPDATE, 0, 0, struct.pack(">I", WINDOW)))

    def close(self):
        """Closes the connection."""
        try:
            self.socket.close()
        except OSError:
            pass

    @staticmethod
    def _frame(kind, flags, stream, payload=b""):
        return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload

    def _write(self, data):
        try:
            self.socket.sendall(data)
        except OSError as cause:
            raise Broken("send: %s" % cause)

    def open(self, method, metadata=()):
        """Begins a call and returns its stream."""
        if self.refuses:
            raise Broken("the server takes no more calls")
        stream = Stream(self.next, self.stream_window)
        self.next += 2
        self.streams[stream.number] = stream
        headers = b"\x83\x86"  # POST, http
        headers += b"\x04" + _integer(len(method)) + method.encode("ascii")
        headers += b"\x01" + _integer(len(self.host)) + self.host.encode("ascii")
        for name, value in (("content-type", "application/grpc"), ("te", "trailers")) + tuple(metadata):
            headers += _literal(name, value)
        self._write(self._frame(HEADERS, END_HEADERS, stream.number, headers))
        return stream

    def send(self, stream, message, last=False, timeout=3.0):
        """Sends a message; the last one ends our side."""
        data = struct.pack(">BI", 0, len(message)) + message
        end = time.monotonic() + timeout
        while data:
            room = min(self.window, stream.window, FRAME_LIMIT)
            if room <= 0:
                if stream.ended or not self.pump(end - time.monotonic()):
                    raise Broken("the server takes nothing")
                continue
            part, data = data[:room], data[room:]
            self.window -= len(part)
            stream.window -= len(part)
            self._write(self._frame(DATA, END_STREAM if last and not data else 0, stream.number, part))

    def call(self, method, message, timeout=3.0):
        """Calls a method and returns its answer. Raises Broken."""
        stream = self.open(method)
        end = time.monotonic() + timeout
        try:
            self.send(stream, message, True, timeout)
            while not stream.messages:
                if stream.ended:
                    raise Broken("%s was refused" % method)
                left = end - time.monotonic()
                if left <= 0:
                    self._write(self._frame(RST_STREAM, 0, stream.number, struct.pack(">I", 8)))
                    raise Broken("%s: no answer in %g s" % (method, timeout))
                self.pump(left)
            return stream.messages[0]
        finally:
            self.streams.pop(stream.number, None)

    def pump(self, timeout):
        """Reads what comes within timeout seconds; False: nothing came."""
        try:
            ready, _, _ = select.select([self.socket], [], [], max(timeout, 0))
            if not ready:
                return False
            data = self.socket.recv(65536)
        except (OSError, ValueError) as cause:
            raise Broken("receive: %s" % cause)
        if not data:
            raise Broken("the server closed the connection")
        self.input += data
        while len(self.input) >= 9:
            size = int.from_bytes(self.input[:3], "big")
            if size > FRAME_LIMIT:
                raise Broken("a frame of %d bytes" % size)
            if len(self.input) < 9 + size:
                break
            kind, flags, number = struct.unpack_from(">BBI", self.input, 3)
            payload = self.input[9:9 + size]
            self.input = self.input[9 + size:]
            self._take(kind, flags, number & 0x7FFFFFFF, payload)
        return True

    def _take(self, kind, flags, number, payload):
        stream = self.streams.get(number)
        if kind == DATA:
            if payload:
                grant = struct.pack(">I", len(payload))
                self._write(self._frame(WINDOW_UPDATE, 0, 0, grant) +
                            (self._frame(WINDOW_UPDATE, 0, number, grant) if stream is not None and not flags & END_STREAM else b""))
            if flags & PADDED:
                payload = payload[1:len(payload) - payload[0]] if payload else b""
            if stream is not None:
                stream.take(payload)
        if kind in (DATA, HEADERS) and flags & END_STREAM and stream is not None:
            stream.ended = True
        elif kind == RST_STREAM and stream is not None:
            stream.ended = True
        elif kind == SETTINGS and not flags & ACK:
            self._settings(payload)
            self._write(self._frame(SETTINGS, ACK, 0))
        elif kind == PING and not flags & ACK:
            self._write(self._frame(PING, ACK, 0, payload[:8]))
        elif kind == GOAWAY:
            self.refuses = True
        elif kind == WINDOW_UPDATE and len(payload) == 4:
            more = struct.unpack(">I", payload)[0] & 0x7FFFFFFF
            if number == 0:
                self.window += more
            elif stream is not None:
                stream.window += more

    def _settings(self, payload):
        for at in range(0, len(payload) - 5, 6):
            which, value = struct.unpack_from(">HI", payload, at)
            if which == 4:
                for stream in self.streams.values():
                    stream.window += value - self.stream_window
                self.stream_window = value
