"""The studio's server: this machine alone, reading alone, and nothing but the runs that it lists.

A web page elsewhere can make a browser ask 127.0.0.1. Such questions carry another Host (a name of its own that it lets
point here) or another Origin, and are refused. A run is looked up in the list of runs, never opened by a path from a
request. Reports come from disk, where anyone may have written them: they are shown in a sandbox that has no origin.
"""

import contextlib
import os
import socket
import threading
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from kdbirl.archive import opened
from kdbirl.errors import JSON_BYTES, FileProblem, InputError, KDBIRLError
from kdbirl.methods.posteriors import StoredPosteriors
from kdbirl.report.html import NAME, report_page
from kdbirl.report.page import elements
from kdbirl.report.page.shell import Section, page
from kdbirl.report.run_files import read_run
from kdbirl.report.studio.pages import ALL_RUNS, comparison_page, list_page, listed, runs_under, tasks_list_page
from kdbirl.report.tasks import FILE, is_tasks_run, task_run

LOOPBACK = "127.0.0.1"
SECONDS = 30  # for a request to arrive
MOST_CONNECTIONS = 256
PAGES_AT_ONCE = os.cpu_count() or 1  # each may read posteriors, in a process of 40 MiB
MOST_FIELDS = 20
SANDBOX = (
    "sandbox allow-scripts allow-modals; default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; "
    "img-src data:"
)
HEADERS = {
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


class NotThere(KDBIRLError):
    """No page, or no run, of that name."""


class BadRequest(KDBIRLError):
    """What was asked is no address of ours."""


class Studio:
    """The pages, without the server: a path with its query in, HTML out."""

    def __init__(self, root: Path) -> None:
        if not root.is_dir():
            what = "is a file" if root.exists() else "does not exist"
            raise FileProblem(f"{root} {what}; give a directory that holds runs of kdbirl fit.")
        self.root = root.resolve()

    def answer(self, target: str) -> tuple[str, bool]:
        """The page, and whether it came from disk."""
        try:
            parts = urlsplit(target)
            asked = {name: given[-1] for name, given in parse_qs(parts.query, max_num_fields=MOST_FIELDS).items()}
        except ValueError as problem:
            raise BadRequest("This is no address of the studio's; the list of runs is at /.") from problem
        if parts.path == "/":
            runs = runs_under(self.root)
            return list_page(str(self.root), [listed(name, place) for name, place in runs.items()]), False
        if parts.path == "/report" and "task" in asked:
            place = self._run(asked.get("run", ""))
            if not is_tasks_run(place) or asked["task"] not in StoredPosteriors(place / FILE):
                raise NotThere(f"There is no test task {asked['task']!r} in this run; the list of runs is at /.")
            return report_page(task_run(place, asked["task"]), rows=False), False
        if parts.path == "/report":
            return self._report(self._run(asked.get("run", ""))), True
        if parts.path == "/tasks":
            name, place = asked.get("run", ""), self._run(asked.get("run", ""))
            tasks = list(StoredPosteriors(place / FILE)) if is_tasks_run(place) else []
            return tasks_list_page(name, tasks), False
        if parts.path == "/compare":
            one, other = (read_run(self._run(asked.get(side, ""))) for side in ("one", "other"))
            return comparison_page(one, other), False
        raise NotThere("There is no such page; the list of runs is at /.")

    def _run(self, name: str) -> Path:
        runs = runs_under(self.root)
        if name not in runs:
            raise NotThere(f"There is no run {name[:80]!r} here; the list of runs is at /.")
        return runs[name]

    def _report(self, place: Path) -> str:
        """The page as it was written, with or without rows; a new one where there is none."""
        file = place / NAME
        if file.is_file() and not file.is_symlink():
            with opened(file, "expected a report", JSON_BYTES) as stream:
                return with_way_back(stream.read().decode("utf-8", errors="replace"))
        return with_way_back(report_page(read_run(place), rows=False))


def with_way_back(text: str) -> str:
    """A report that came from disk knows of no studio: the link to the list is put above its title."""
    return text.replace("<header>", f"<header>{ALL_RUNS}", 1)


class _Handler(BaseHTTPRequestHandler):
    server: "_Server"
    server_version, sys_version = "kdbirl", ""
    timeout = SECONDS

    def setup(self) -> None:
        """A request has so many seconds to arrive as a whole: a byte now and then does not hold a thread for ever."""
        super().setup()
        self._deadline = threading.Timer(SECONDS, self._hang_up)
        self._deadline.daemon = True
        self._deadline.start()

    def _hang_up(self) -> None:
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_RD)

    def do_GET(self) -> None:
        self._deadline.cancel()  # it has arrived: making a page may take longer
        if not (self._is_ours() or self._goes_to_the_list()):
            return self._send(HTTPStatus.FORBIDDEN, "This page answers only to a browser on this machine.")
        try:
            with self.server.making:
                text, from_disk = self.server.studio.answer(self.path)
        except BadRequest as problem:
            return self._send(HTTPStatus.BAD_REQUEST, _problem(str(problem)))
        except NotThere as problem:
            return self._send(HTTPStatus.NOT_FOUND, _problem(str(problem)))
        except KDBIRLError as problem:
            return self._send(HTTPStatus.INTERNAL_SERVER_ERROR, _problem(str(problem)))
        except Exception as problem:  # a fault of ours is a page too; what was half made is not sent
            sentence = f"This page cannot be made: {type(problem).__name__}. `kdbirl report RUN` says more."
            return self._send(HTTPStatus.INTERNAL_SERVER_ERROR, _problem(sentence))
        return self._send(HTTPStatus.OK, text, {"Content-Security-Policy": SANDBOX} if from_disk else {})

    def finish(self) -> None:
        self._deadline.cancel()
        super().finish()

    def do_HEAD(self) -> None:
        self.do_GET()

    def _is_ours(self) -> bool:
        """The Host is this address, and no page of another origin asks."""
        origin, own = self.headers.get("Origin"), self._own_hosts()
        elsewhere = self.headers.get("Sec-Fetch-Site") in ("cross-site", "same-site")
        return self._host_is_ours() and origin in (None, *(f"http://{host}" for host in own)) and not elsewhere

    def _own_hosts(self) -> set[str]:
        return {f"{name}:{self.server.server_port}" for name in (LOOPBACK, "localhost")}

    def _host_is_ours(self) -> bool:
        """Exactly one Host, and this address: of two, another program might believe the other."""
        hosts = self.headers.get_all("Host") or []
        return len(hosts) == 1 and hosts[0] in self._own_hosts()

    def _goes_to_the_list(self) -> bool:
        """A click in a report, which its sandbox makes a page of no origin: it may only be shown the list of runs."""
        asked = (self.headers.get("Sec-Fetch-Mode"), self.headers.get("Sec-Fetch-Dest"), self.headers.get("Origin"))
        return self.path == "/" and self._host_is_ours() and asked == ("navigate", "document", None)

    def _send(self, status: HTTPStatus, text: str, more: dict[str, str] | None = None) -> None:
        body = text.encode()
        self.send_response(status)
        for name, value in {**HEADERS, **(more or {})}.items():
            self.send_header(name, value)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None:
        """A page that was looked at is nobody else's business."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 512

    def __init__(self, studio: Studio, port: int) -> None:
        self.studio = studio
        self._places = threading.BoundedSemaphore(MOST_CONNECTIONS)
        self.making = threading.BoundedSemaphore(PAGES_AT_ONCE)
        super().__init__((LOOPBACK, port), _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        """In a thread of its own, as soon as there are few enough: the others wait in the queue."""
        self._places.acquire()
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._places.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A connection that broke off is nobody's fault, and no traceback on the user's terminal."""


def studio_server(root: Path, port: int = 0) -> ThreadingHTTPServer:
    """A server on the loopback address; port 0 takes a free one. `serve_forever()` starts it."""
    try:
        return _Server(Studio(root), port)
    except OSError as problem:
        raise InputError(
            f"Port {port} cannot be used ({problem.strerror}); choose another, or 0 for a free one."
        ) from problem


def _problem(sentence: str) -> str:
    return page(
        "kdbirl studio",
        [Section("problem", "Not found", elements.paragraph(sentence) + ALL_RUNS)],
    )
