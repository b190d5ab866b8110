"""HTTP servers in the test process: of files, and proxies whose requests wait or fail."""

import contextlib
import http.client
import http.server
import io
import os
import random
import re
import threading
from collections import Counter


class Server(http.server.ThreadingHTTPServer):
    """Files of a folder; requests can be made to fail, or to wait for others."""

    daemon_threads = True
    request_queue_size = 1024

    def __init__(self, folder):
        super().__init__(("127.0.0.1", 0), Handler)
        self.folder = str(folder)
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.behave()

    def behave(self):
        self.failing, self.status, self.times = "", 500, 0
        self.asked = Counter()
        self.at_once = self.most_at_once = self.together = 0
        self.changed = threading.Condition()


class Handler(http.server.SimpleHTTPRequestHandler):
    def __init__(self, *arguments):
        super().__init__(*arguments, directory=arguments[2].folder)

    def do_GET(self):
        with self.server.changed:
            self.server.asked[self.path] += 1
            n_asked = self.server.asked[self.path]
        fails = self.path.startswith(self.server.failing or "nothing")
        if fails and n_asked <= self.server.times:
            self.send_error(self.server.status)
            return
        self.wait_for_others()
        super().do_GET()

    def wait_for_others(self):
        """Wait until as many requests as the test expects have been made at a time."""
        server = self.server
        with server.changed:
            server.at_once += 1
            server.most_at_once = max(server.most_at_once, server.at_once)
            server.changed.notify_all()
            server.changed.wait_for(lambda: server.most_at_once >= server.together, 60)
            server.at_once -= 1

    def send_head(self):
        path = self.translate_path(self.path)
        if os.path.isdir(path):
            self.send_error(404)  # as most servers do
            return None
        asked = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range") or "")
        if not asked or not os.path.exists(path):
            return super().send_head()
        with open(path, "rb") as file:
            body = file.read()
        part = body[int(asked[1]) : int(asked[2] or len(body)) + 1]
        self.send_response(206)
        last = int(asked[1]) + len(part) - 1
        self.send_header("Content-Range", f"bytes {asked[1]}-{last}/{len(body)}")
        self.send_header("Content-Length", str(len(part)))
        self.end_headers()
        return io.BytesIO(part)

    def end_headers(self):
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("ETag", '"the same"')  # without which clients resume no answer
        super().end_headers()

    def log_message(self, *_):
        pass


@contextlib.contextmanager
def serving(server):
    """Answer requests in another thread."""
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


class Proxy(http.server.ThreadingHTTPServer):
    """Passes requests on to another server; some of them fail, each in its own way."""

    daemon_threads = True
    request_queue_size = 1024

    def __init__(self, address, share, seed, only=""):
        super().__init__(("127.0.0.1", 0), ProxyHandler)
        self.address, self.share, self.chance = address, share, random.Random(seed)
        self.only, self.ways = only, ["reset", "cut", 503]
        self.asked = self.failures = 0
        self.counting = threading.Lock()

    def fails(self, path):
        """Count a request; return whether it fails."""
        meant = self.only in path
        with self.counting:
            failing = meant and self.chance.random() < self.share
            self.asked += meant
            self.failures += failing
        return failing

    def handle_error(self, *_):
        pass  # clients hang up


class ProxyHandler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def handle_one_request(self):
        self.raw_requestline = self.rfile.readline(65537)
        if not self.raw_requestline or not self.parse_request():
            self.close_connection = True
            return
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        way = self.server.chance.choice(self.server.ways) if self.server.fails(self.path) else None
        self.close_connection = self.close_connection or way in ("reset", "cut")
        if way == "reset":
            return
        if isinstance(way, int):
            self.respond(way, {}, b"<Error><Code>Failed</Code></Error>")
            return
        client = http.client.HTTPConnection(self.server.address)
        client.request(self.command, self.path, body, dict(self.headers))
        self.answer(client.getresponse(), cut=way == "cut")
        client.close()

    def answer(self, response, cut):
        length = {"Content-Length": response.headers["Content-Length"]}
        kept = {"ETag", "Last-Modified", "Content-Type", "Content-Range"}
        headers = {name: value for name, value in response.headers.items() if name in kept}
        body = response.read()
        headers |= length if cut or self.command == "HEAD" else {}
        self.respond(response.status, headers, body[: len(body) // 2] if cut else body)

    def respond(self, status, headers, body):
        self.send_response(status)
        for name, value in ({"Content-Length": str(len(body))} | headers).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *_):
        pass
