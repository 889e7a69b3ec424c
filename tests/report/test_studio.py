"""The studio's server: loopback alone, Host and Origin checked, nothing served but the runs that are listed."""

import http.client
import threading

import pytest

from kdbirl.errors import FileProblem, InputError
from kdbirl.report.studio.pages import runs_under
from kdbirl.report.studio.server import LOOPBACK, SANDBOX, Studio, studio_server

from .posteriors import posterior

NAME = '<b>new</b> & "old"'


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Three runs (one of them deeper, one with a hostile name), a secret beside them, and things that are no runs."""
    root = tmp_path_factory.mktemp("studio") / "runs"
    for name in ("first", "deep/second", NAME, ".unfinished", "../elsewhere"):
        (root / name).mkdir(parents=True)
        posterior().save(root / name / "posterior.nc")
    (root / "first" / "report.html").write_text("<p>as it was written</p>")
    (root / "empty").mkdir()
    (root / "link").symlink_to(root.parent / "elsewhere")
    (root / "secret.txt").write_text("secret")
    return root


@pytest.fixture(scope="module")
def server(runs):
    with studio_server(runs) as running:
        thread = threading.Thread(target=running.serve_forever)
        thread.start()
        yield running
        running.shutdown()
        thread.join()


def ask(server, path, method="GET", **headers):
    connection = http.client.HTTPConnection(LOOPBACK, server.server_port, timeout=60)
    try:
        connection.request(method, path, headers={name.replace("_", "-"): value for name, value in headers.items()})
        answer = connection.getresponse()
        return answer, answer.read().decode()
    finally:
        connection.close()


def test_it_listens_on_loopback_alone(server):
    assert server.server_address[0] == "127.0.0.1"


def test_runs_are_those_with_draws_below_the_directory(runs):
    assert list(runs_under(runs)) == [NAME, "deep/second", "first"]
    assert list(runs_under(runs / "first")) == ["first"]


def test_the_list_has_every_run_as_text(server):
    answer, text = ask(server, "/")
    assert answer.status == 200
    assert "3 runs in" in text
    assert "<b>new" not in text
    assert "&lt;b&gt;new&lt;/b&gt; &amp; &quot;old&quot;" in text
    assert "/report?run=deep%2Fsecond" in text
    assert answer.headers["X-Frame-Options"] == "DENY"
    assert answer.headers["X-Content-Type-Options"] == "nosniff"


def test_a_report_comes_from_disk_in_a_sandbox(server):
    answer, text = ask(server, "/report?run=first")
    assert (answer.status, text) == (200, "<p>as it was written</p>")
    assert answer.headers["Content-Security-Policy"] == SANDBOX
    assert "allow-same-origin" not in SANDBOX


def test_a_report_that_was_never_written_is_made_without_rows(server, runs):
    answer, text = ask(server, "/report?run=deep/second")
    assert answer.status == 200
    assert '<meta name="kdbirl-rows" content="left out">' in text
    assert not (runs / "deep/second/report.html").exists()


def test_two_runs_are_compared(server):
    answer, text = ask(server, "/compare?one=first&other=deep/second")
    assert answer.status == 200
    assert "Two posteriors with 2 reward parameters in common, from the same expert rows." in text
    assert "Every choice on record is the same." in text


@pytest.mark.parametrize(
    "path",
    [
        "/secret.txt",
        "/first/report.html",
        "/../elsewhere/posterior.nc",
        "/report",
        "/report?run=",
        "/report?run=../elsewhere",
        "/report?run=first/../../elsewhere",
        "/report?run=link",
        "/report?run=empty",
        "/report?run=.unfinished",
        "/report?run=first%00",
        "/compare?one=first&other=%2e%2e/elsewhere",
        "//evil/",
    ],
)
def test_nothing_else_is_served(server, path):
    answer, text = ask(server, path)
    assert answer.status == 404
    assert "secret" not in text.replace("secret.txt", "")


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},
        {"Host": "evil.example:{port}"},
        {"Host": "127.0.0.1"},
        {"Host": "127.0.0.1:{port}.evil.example"},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "https://127.0.0.1:{port}"},
        {"Sec_Fetch_Site": "cross-site"},
    ],
)
def test_strangers_are_refused(server, headers):
    given = {name: value.format(port=server.server_port) for name, value in headers.items()}
    answer, text = ask(server, "/", **given)
    assert answer.status == 403
    assert "first" not in text


def test_its_own_name_and_origin_are_let_in(server):
    host = f"localhost:{server.server_port}"
    assert ask(server, "/", Host=host, Origin=f"http://{host}")[0].status == 200


def test_it_only_reads(server):
    for method in ("POST", "PUT", "DELETE", "OPTIONS"):
        assert ask(server, "/", method)[0].status == 501
    answer, text = ask(server, "/", "HEAD")
    assert (answer.status, text) == (200, "")


def test_a_damaged_run_is_a_sentence(server, runs):
    (runs / "first" / "manifest.json").write_text("{")
    answer, text = ask(server, "/compare?one=first&other=first")
    (runs / "first" / "manifest.json").unlink()
    assert answer.status == 500
    assert "manifest.json cannot be read as JSON" in text


def test_what_cannot_be_served_is_said(tmp_path, server):
    with pytest.raises(FileProblem, match="does not exist; give a directory that holds runs"):
        Studio(tmp_path / "none")
    with pytest.raises(InputError, match=f"Port {server.server_port} cannot be used"):
        studio_server(tmp_path, server.server_port)
