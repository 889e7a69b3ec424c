"""The studio's server: this machine alone, reading alone, and nothing but the runs that it lists.

A web page elsewhere can make a browser ask 127.0.0.1. Such questions carry another Host (a name of its own that it lets
point here) or another Origin, and are refused. A run is looked up in the list of runs, never opened by a path from a
request. Reports come from disk, where anyone may have written them: they are shown in a sandbox that has no origin.
"""

from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from kdbirl.errors import FileProblem, InputError, KDBIRLError
from kdbirl.report.html import NAME, report_page
from kdbirl.report.page import elements
from kdbirl.report.page.shell import Section, page
from kdbirl.report.run_files import read_run
from kdbirl.report.studio.pages import comparison_page, list_page
from kdbirl.report.studio.runs import listed, runs_under

LOOPBACK = "127.0.0.1"
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


class Studio:
    """The pages, without the server: a path with its query in, HTML out."""

    def __init__(self, root: Path) -> None:
        if not root.is_dir():
            what = "is a file" if root.exists() else "does not exist"
            raise FileProblem(f"{root} {what}; give a directory that holds runs of kdbirl fit.")
        self.root = root.resolve()

    def answer(self, target: str) -> tuple[str, bool]:
        """The page, and whether it came from disk."""
        parts = urlsplit(target)
        asked = {name: given[-1] for name, given in parse_qs(parts.query).items()}
        if parts.path == "/":
            runs = runs_under(self.root)
            return list_page(str(self.root), [listed(name, place) for name, place in runs.items()]), False
        if parts.path == "/report":
            return self._report(self._run(asked.get("run", ""))), True
        if parts.path == "/compare":
            one, other = (read_run(self._run(asked.get(side, ""))) for side in ("one", "other"))
            return comparison_page(one, other), False
        raise NotThere("There is no such page; the list of runs is at /.")

    def _run(self, name: str) -> Path:
        runs = runs_under(self.root)
        if name not in runs:
            raise NotThere(f"There is no run {name!r} here; the list of runs is at /.")
        return runs[name]

    def _report(self, place: Path) -> str:
        """The page as it was written, with or without rows; a new one where there is none."""
        file = place / NAME
        if file.is_file() and not file.is_symlink():
            return file.read_text(encoding="utf-8", errors="replace")
        return report_page(read_run(place), rows=False)


class _Handler(BaseHTTPRequestHandler):
    server: "_Server"
    server_version, sys_version = "kdbirl", ""
    timeout = 30  # seconds for a request to arrive

    def do_GET(self) -> None:
        if not self._is_ours():
            return self._send(HTTPStatus.FORBIDDEN, "This page answers only to a browser on this machine.")
        try:
            text, from_disk = self.server.studio.answer(self.path)
        except NotThere as problem:
            return self._send(HTTPStatus.NOT_FOUND, _problem(str(problem)))
        except (InputError, FileProblem) as problem:
            return self._send(HTTPStatus.INTERNAL_SERVER_ERROR, _problem(str(problem)))
        return self._send(HTTPStatus.OK, text, {"Content-Security-Policy": SANDBOX} if from_disk else {})

    def do_HEAD(self) -> None:
        self.do_GET()

    def _is_ours(self) -> bool:
        """The Host is this address, and no page of another origin asks."""
        own = {f"{name}:{self.server.server_port}" for name in (LOOPBACK, "localhost")}
        origin = self.headers.get("Origin")
        elsewhere = self.headers.get("Sec-Fetch-Site") in ("cross-site", "same-site")
        return (
            self.headers.get("Host") in own and origin in (None, *(f"http://{host}" for host in own)) and not elsewhere
        )

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

    def __init__(self, studio: Studio, port: int) -> None:
        self.studio = studio
        super().__init__((LOOPBACK, port), _Handler)


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
        [Section("problem", "Not found", elements.paragraph(sentence) + '<p><a href="/">All runs</a></p>')],
    )
