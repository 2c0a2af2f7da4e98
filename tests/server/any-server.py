# Does whatever its path says: a server inside, for the tests of the way to it.
import base64, hashlib, json, socketserver, sys, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def log_message(self, *args): pass
    def body(self):
        if self.headers.get("Transfer-Encoding") == "chunked":
            data = b""
            while True:
                size = int(self.rfile.readline(), 16)
                chunk = self.rfile.read(size)
                if size == 0:
                    trailer = b""
                    while True:
                        line = self.rfile.readline()
                        if line in (b"\r\n", b""): break
                        trailer += line
                    self.trailer = trailer.decode()
                    return data
                self.rfile.readline()
                data += chunk
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))
    def answer(self, status, data, headers=()):
        self.send_response(status)
        for name, value in headers: self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD": self.wfile.write(data)
    def handle_any(self):
        self.trailer = ""
        path = self.path.split("?")[0]
        if path == "/echo":
            data = self.body()
            facts = {"method": self.command, "path": self.path, "headers": [[k, v] for k, v in self.headers.items()],
                     "length": len(data), "sha256": hashlib.sha256(data).hexdigest(), "trailer": self.trailer}
            self.answer(200, json.dumps(facts).encode(), [("Set-Cookie", "a=1"), ("Set-Cookie", "b=2"), ("X-Inside", "yes")])
        elif path == "/big":
            self.send_response(200)
            self.send_header("Content-Length", str(64 * 1048576))
            self.end_headers()
            block = b"x" * 1048576
            for _ in range(64): self.wfile.write(block)
        elif path == "/events":
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for n in range(5):
                part = ("data: %d\n\n" % n).encode()
                self.wfile.write(b"%x\r\n%s\r\n" % (len(part), part))
                self.wfile.flush()
                time.sleep(0.2)
            self.wfile.write(b"0\r\nX-Trailer: done\r\n\r\n")
        elif path == "/broken":
            self.send_response(200)
            self.send_header("Content-Length", "1000")
            self.end_headers()
            self.wfile.write(b"only this")
            self.close_connection = True
        elif path == "/silent":
            self.close_connection = True
        elif path == "/never":
            time.sleep(1000)
        elif path == "/lie":
            self.close_connection = True
            self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n")
        elif path == "/old":
            self.close_connection = True
            self.wfile.write(b"HTTP/1.0 200 OK\r\n\r\nuntil the end")
        elif path == "/early":
            self.close_connection = True
            self.answer(413, b"too much", [("Connection", "close")])
        elif path == "/hints":
            self.wfile.write(b"HTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload; as=style\r\n\r\n")
            self.answer(200, b"after hints")
        elif path == "/status":
            self.answer(int(self.path.split("?")[1]), b"")
        elif path == "/ws":
            key = self.headers["Sec-WebSocket-Key"]
            if key is None or self.headers.get("X-Refuse"):
                return self.answer(401, b"no")
            accept = base64.b64encode(hashlib.sha1((key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11").encode()).digest()).decode()
            self.send_response(101)
            self.send_header("Upgrade", "websocket")
            self.send_header("Connection", "Upgrade")
            self.send_header("Sec-WebSocket-Accept", accept)
            self.end_headers()
            self.close_connection = True
            while True:
                head = self.rfile.read(2)
                if len(head) < 2: return
                op, length = head[0] & 15, head[1] & 127
                if length == 126: length = int.from_bytes(self.rfile.read(2), "big")
                elif length == 127: length = int.from_bytes(self.rfile.read(8), "big")
                mask = self.rfile.read(4)
                data = self.rfile.read(length)
                data = bytes(b ^ mask[i % 4] for i, b in enumerate(data)) if length < 100000 else data
                if op == 8: return
                out = bytes([0x80 | op])
                if length < 126: out += bytes([length])
                elif length < 65536: out += bytes([126]) + length.to_bytes(2, "big")
                else: out += bytes([127]) + length.to_bytes(8, "big")
                self.wfile.write(out + data)
                self.wfile.flush()
        else:
            self.answer(404, b"inside says no")
    do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = do_OPTIONS = do_PATCH = handle_any

class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128
print("ready", flush=True)
Server((sys.argv[1], int(sys.argv[2])), Handler).serve_forever()
