"""The studio against strangers and broken clients: nothing leaves the directory, nothing hangs, no traceback."""

import http.client
import socket
import threading
import time

import pytest

from kdbirl.report.studio import server as studio
from kdbirl.report.studio.pages import runs_under
from kdbirl.report.studio.server import LOOPBACK, studio_server

from .posteriors import posterior


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A run, runs whose files are links out of the directory, and secrets beside it."""
    root = tmp_path_factory.mktemp("attacked") / "runs"
    outside = root.parent / "outside"
    for place in (root / "good", root / "linked", root / "manifest", root / "within", outside):
        place.mkdir(parents=True)
    posterior().save(outside / "posterior.nc")
    (outside / "secret.json").write_text('{"choices": {"method": "SECRET"}}')
    for name in ("good", "manifest"):
        posterior().save(root / name / "posterior.nc")
    (root / "linked" / "posterior.nc").symlink_to(outside / "posterior.nc")
    (root / "manifest" / "manifest.json").symlink_to(outside / "secret.json")
    (root / "within" / "posterior.nc").symlink_to(root / "good" / "posterior.nc")
    return root


@pytest.fixture(scope="module")
def server(runs):
    with studio_server(runs) as running:
        thread = threading.Thread(target=running.serve_forever)
        thread.start()
        yield running
        running.shutdown()
        thread.join()


def raw(server, request: bytes, seconds: float = 60) -> bytes:
    """Bytes as they are, and everything that comes back."""
    with socket.create_connection((LOOPBACK, server.server_port), timeout=seconds) as connection:
        connection.sendall(request.replace(b"PORT", str(server.server_port).encode()))
        answer = b""
        while piece := connection.recv(65536):
            answer += piece
    return answer


def status(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1]) if answer else 0


def test_a_run_with_a_link_out_of_the_directory_is_not_served(runs, server):
    assert list(runs_under(runs)) == ["good", "within"]
    for name in ("linked", "manifest"):
        assert status(raw(server, f"GET /report?run={name} HTTP/1.1\r\nHost: 127.0.0.1:PORT\r\n\r\n".encode())) == 404
    assert b"SECRET" not in raw(server, b"GET / HTTP/1.1\r\nHost: 127.0.0.1:PORT\r\n\r\n")


@pytest.mark.parametrize(
    "target",
    [
        "/../outside/secret.json",
        "/%2e%2e/outside/secret.json",
        "/..%2foutside%2fsecret.json",
        "/%2e%2e%2f",
        "//etc/passwd",
        "/etc/passwd",
        "/good/posterior.nc",
        "/report?run=../outside",
        "/report?run=%2e%2e%2foutside",
        "/report?run=/etc",
        "/report?run=good%00.html",
        "/report?run=good/../good",
        "/report?run=good/",
        "/report?run=.",
        "/report?run=..",
        "/report?run=good\\..\\..",
        "/compare?one=good&other=../outside",
        "/report?run=" + "a" * 5000,
        "/report/good",
        "/%00",
    ],
)
def test_tricks_in_paths_find_nothing(server, target):
    answer = raw(server, f"GET {target} HTTP/1.1\r\nHost: 127.0.0.1:PORT\r\n\r\n".encode())
    assert status(answer) == 404
    assert b"SECRET" not in answer
    assert b"root:" not in answer


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        (b"GET http://[ HTTP/1.1\r\nHost: 127.0.0.1:PORT\r\n\r\n", 400),
        (b"GET /?" + b"a=1&" * 100 + b" HTTP/1.1\r\nHost: 127.0.0.1:PORT\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: 127.0.0.1:PORT\r\nHost: evil.example\r\n\r\n", 403),
        (b"GET / HTTP/1.1\r\n\r\n", 403),
        (b"GET http://evil.example/ HTTP/1.1\r\nHost: evil.example\r\n\r\n", 403),
        (b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\n\r\n", 414),
        (b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 300 + b"\r\n", 431),
        (b"GET / HTTP/1.1\r\nHost: 127.0.0.1:PORT\r\nA: " + b"b" * 70_000 + b"\r\n\r\n", 431),
        (b"BREW / HTTP/1.1\r\nHost: 127.0.0.1:PORT\r\n\r\n", 501),
        (b"POST / HTTP/1.1\r\nHost: 127.0.0.1:PORT\r\nContent-Length: 99999999999\r\n\r\n", 501),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400),
        (b"GET / HTTP/9.9\r\n\r\n", 505),
        (b"\r\n\r\n", 0),
    ],
)
def test_requests_that_are_none(server, request_, expected, capfd):
    answer = raw(server, request_)
    found = status(answer) if answer.startswith(b"HTTP") else expected
    assert found == expected
    assert b"Traceback" not in answer
    assert capfd.readouterr().err == ""


def test_a_slow_client_is_hung_up_on_and_holds_nobody_else(runs, monkeypatch, capfd):
    monkeypatch.setattr(studio, "SECONDS", 1)
    with studio_server(runs) as running:
        thread = threading.Thread(target=running.serve_forever)
        thread.start()
        try:
            slow = [socket.create_connection((LOOPBACK, running.server_port), timeout=60) for _ in range(20)]
            for connection in slow:
                connection.sendall(b"GET / HT")
            own = http.client.HTTPConnection(LOOPBACK, running.server_port, timeout=60)
            own.request("GET", "/")
            assert own.getresponse().status == 200
            own.close()
            start = time.monotonic()
            for connection in slow:
                while connection.recv(4096):  # until the server hangs up
                    pass
                connection.close()
            assert time.monotonic() - start < 60
        finally:
            running.shutdown()
            thread.join()
    assert capfd.readouterr().err == ""


def test_a_fault_in_making_a_page_is_a_page(server, monkeypatch, capfd):
    def broken(*_):
        raise ZeroDivisionError("secret detail")

    monkeypatch.setattr(studio, "list_page", broken)
    answer = raw(server, b"GET / HTTP/1.1\r\nHost: 127.0.0.1:PORT\r\n\r\n")
    assert status(answer) == 500
    assert b"This page cannot be made: ZeroDivisionError" in answer
    assert b"secret detail" not in answer
    assert capfd.readouterr().err == ""
