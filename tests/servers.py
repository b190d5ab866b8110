"""HTTP servers in the test process: of files, and proxies whose requests wait or fail."""

import contextlib
import http.client
import http.server
import io
import os
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
            self.send_error(404)  # Most servers list no folder.
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
        self.send_header("ETag", '"the same"')  # Clients resume answers that have one.
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
