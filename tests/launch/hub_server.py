"""A server on this machine that answers what `huggingface_hub` asks when it uploads a data set."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

TOKEN = "hf_" + "a1B2" * 8
LARGE = ".parquet"  # the hub stores these by Git LFS


class Hub:
    """The state of the server: one data set at most.

    Attributes:
        endpoint: for HF_ENDPOINT.
        repository: its name, owner and visibility, as they were asked for; None: there is none.
        files: the content by name, as committed.
        commits: the messages.
        requests: method and path of each request.
        failures: path pattern → status and JSON that it answers with instead.
    """

    def __init__(self) -> None:
        self.endpoint = ""
        self.repository: dict[str, object] | None = None
        self.files: dict[str, bytes] = {}
        self.large: dict[str, bytes] = {}
        self.commits: list[str] = []
        self.requests: list[str] = []
        self.failures: dict[str, tuple[int, dict[str, object]]] = {}

    def answer(self, request: str, token: str, body: bytes) -> tuple[int, dict[str, object]]:
        """The status and the JSON of one request."""
        self.requests.append(request)
        for pattern, failure in self.failures.items():
            if re.search(pattern, request):
                return failure
        if match := re.fullmatch(r"PUT /large/(\w+)", request):  # the address has its own key
            self.large[match[1]] = body
            return 200, {}
        if token != f"Bearer {TOKEN}":
            return 401, {"error": f"Invalid credentials {token}"}
        if request == "POST /api/repos/create":
            status = 200 if self.repository is None else 409
            self.repository = self.repository or json.loads(body)
            said = {} if status == 200 else {"error": "You already created this dataset repo"}
            return status, {"url": f"{self.endpoint}/datasets/{self.name}", **said}
        if request == f"GET /api/datasets/{self.name}":
            visibility = (self.repository or {}).get("visibility")
            return 200, {"id": self.name, "private": visibility == "private", "sha": "0" * 40}
        if request == "POST /api/validate-yaml":
            return 200, {"errors": [], "warnings": []}
        if request == f"POST /api/datasets/{self.name}/preupload/main":
            return 200, {"files": [self._upload_mode(f["path"]) for f in json.loads(body)["files"]]}
        if request == f"POST /datasets/{self.name}.git/info/lfs/objects/batch":
            return 200, {
                "transfer": "basic",
                "objects": [
                    {**o, "actions": {"upload": {"href": f"{self.endpoint}/large/{o['oid']}"}}}
                    for o in json.loads(body)["objects"]
                ],
            }
        if request == f"POST /api/datasets/{self.name}/commit/main":
            self._commit([json.loads(line) for line in body.splitlines()])
            url = f"{self.endpoint}/datasets/{self.name}/commit/{'1' * 40}"
            return 200, {"commitUrl": url, "commitOid": "1" * 40, "pullRequestUrl": None}
        return 404, {"error": f"no such endpoint: {request}"}

    @property
    def name(self) -> str:
        """The data set's owner/name."""
        repository = self.repository or {}
        return f"{repository.get('organization')}/{repository.get('name')}"

    def _upload_mode(self, path: str) -> dict[str, object]:
        mode = "lfs" if path.endswith(LARGE) else "regular"
        return {"path": path, "uploadMode": mode, "shouldIgnore": False, "oid": None}

    def _commit(self, lines: list[dict[str, dict[str, str]]]) -> None:
        for line in lines:
            key, value = line["key"], line["value"]
            if key == "header":
                self.commits.append(value["summary"])
            elif key == "file":
                assert value["encoding"] == "base64"
                self.files[value["path"]] = base64.b64decode(value["content"])
            elif key == "lfsFile":
                self.files[value["path"]] = self.large[value["oid"]]
            else:
                raise AssertionError(key)


@contextmanager
def running_hub() -> Iterator[Hub]:
    """Serve a hub without a data set on a free port of this machine."""
    hub = Hub()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _answer(self) -> None:
            if self.headers.get("Transfer-Encoding") == "chunked":
                body = b""
                while size := int(self.rfile.readline(), 16):
                    body += self.rfile.read(size + 2)[:-2]
                self.rfile.readline()
            else:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            token = self.headers.get("Authorization", "")
            status, answer = hub.answer(f"{self.command} {self.path}", token, body)
            content = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = do_PUT = _answer

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        hub.endpoint = f"http://127.0.0.1:{server.server_address[1]}"
        Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield hub
        finally:
            server.shutdown()
