"""The explorer's server: answers for this machine alone, and what it refuses."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlencode

import pytest

from mmulator.cli.app import run
from mmulator.matrix.explore import fragments, site
from mmulator.matrix.explore.server import HOST, Server, respond
from tests.support import places
from tests.support.schemas import checked

A = {"family": "mma", "instruction": fragments.FIRST, "operand": "a", "variant": "as it is"}


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as made:
        thread = threading.Thread(target=made.serve_forever)
        thread.start()
        yield made
        made.shutdown()
        thread.join()


def get(server: Server, path: str, host: str = "", method: str = "GET") -> tuple[int, dict[str, str], bytes]:
    connection = HTTPConnection(HOST, server.server_address[1], timeout=600)
    try:
        connection.request(method, path, headers={"Host": host} if host else {})
        answer = connection.getresponse()
        return answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read()
    finally:
        connection.close()


def test_it_serves_pages_and_documents(server: Server) -> None:
    status, headers, page = get(server, "/")
    assert status == 200 and b'data-tables="server"' in page and "default-src 'none'" in headers["content-security-policy"]
    for part in site.PARTS:
        assert get(server, f"/{part}")[2].decode() == site.part(part)
    index = json.loads(get(server, "/index.json")[2])
    assert [v["name"] for v in index["views"]] == [*site.VIEWS] and len(index["devices"]) > 10
    status, _, found = get(server, f"/api/layout?{urlencode(A)}")
    assert status == 200 and json.loads(found)["blocks"] == json.loads(json.dumps(site.document("layout", A)))
    assert get(server, "/", method="HEAD")[2] == b""


@pytest.mark.parametrize(("path", "status"), [
    ("/api/nothing", 400), ("/api/layout?family=mma", 400), ("/../pyproject.toml", 404), ("/page.html", 404),
    ("/data/index.js", 404),
    (f"/api/layout?{urlencode(A)}&more=1", 400),
])  # fmt: skip
def test_what_there_is_not(server: Server, path: str, status: int) -> None:
    found, _, text = get(server, path)
    assert found == status and json.loads(text)["error"]


@pytest.mark.parametrize("host", ["example.org", "127.0.0.1", "127.0.0.1:1", "localhost.example.org", "[::1]:80"])
def test_other_names_are_refused(server: Server, host: str) -> None:
    assert get(server, "/", host)[0] == 421


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS"])
def test_nothing_can_be_changed(server: Server, method: str) -> None:
    assert get(server, "/", method=method)[0] == 501


def test_it_listens_to_this_machine_alone(server: Server) -> None:
    assert server.server_address[0] == "127.0.0.1" and server.url == f"http://127.0.0.1:{server.server_address[1]}/"


def start(*words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "mmulator", "explore", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        cwd=places.ROOT, env=os.environ | {"PYTHONPATH": str(places.PACKAGE)},
    )  # fmt: skip


def test_the_address_as_json() -> None:
    process = start("--json")
    assert process.stdout
    said = "".join(iter(process.stdout.readline, "}\n")) + "}"
    data = json.loads(said)
    assert checked(data) == "explore" and data["url"].startswith("http://127.0.0.1:")
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=600) == 0
    process.communicate()


def test_the_command_prints_its_address_and_ends_with_ctrl_c() -> None:
    process = start()
    assert process.stdout
    address = process.stdout.readline().strip()
    assert address.startswith("http://127.0.0.1:") and process.stdout.readline() == "Ctrl-C ends it\n"
    with socket.create_connection((HOST, int(address.rstrip("/").rpartition(":")[2])), timeout=600):
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=600) == 0
    assert process.communicate() == ("\n", "")


def test_a_port_that_is_taken(server: Server) -> None:
    process = start("--port", str(server.server_address[1]))
    _, said = process.communicate(timeout=600)
    assert process.returncode == 1 and "cannot be used" in said and "--port 0" in said


def test_export_writes_what_the_server_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    few = {family: dict([*forms.items()][:2]) for family, forms in fragments.choices().items()}
    monkeypatch.setattr(site, "VIEWS", {"layout": replace(fragments.VIEW, choices=lambda: few)})
    assert run(["explore", "--export", str(tmp_path), "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert checked(data) == "explore-export"
    count, size = data["files"], data["bytes"]
    written = [p for p in tmp_path.rglob("*") if p.is_file()]
    assert count == len(written) and size == sum(p.stat().st_size for p in written)
    assert 'data-tables="files"' in (tmp_path / "index.html").read_text()
    tables = {p.stem: json.loads(p.read_text().partition(",")[2].removesuffix(")\n")) for p in (tmp_path / "data").iterdir()}
    number = tables["index"]["views"][0]["choices"]["mma"][fragments.FIRST]["a"]["as it is"]
    parts = tables["documents-0"][number]
    found = [tables[f"block-{b['file']}"] if "file" in b else b for b in parts]
    assert found == json.loads(json.dumps(site.document("layout", A)))


def test_an_export_that_stops_leaves_no_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An index stands only beside all of its tables."""

    def stops(said: object) -> Iterator[tuple[str, str]]:
        yield "page.css", ""
        raise KeyboardInterrupt

    monkeypatch.setattr(site, "static", stops)
    with pytest.raises(KeyboardInterrupt):
        site.export(tmp_path)
    assert not (tmp_path / "index.html").exists()


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "site").write_text("")
    process = start("--export", str(tmp_path / "site"))
    _, said = process.communicate(timeout=600)
    assert process.returncode == 1 and "cannot write" in said


ODD = ("", "0", "-1", "1e400", "nan", "9" * 5000, "0x" + "f" * 5000, "1," * 3000, "1 " * 5000, "\0", "\u0663", "[[[[", "1_000",
       "9" * 400 + "," + "9" * 400, "2**99999", "18446744073709551616", "1e-400", "64x" * 500, "0x1p1023")  # fmt: skip


@pytest.mark.parametrize("name", [*site.VIEWS])
def test_odd_numbers_are_answered(name: str) -> None:
    """Every free parameter of every view, with texts that no view takes: an answer, or what is wrong."""
    view = site.VIEWS[name]
    tree, given = view.choices(), dict[str, str]()
    for parameter, _ in view.parameters:
        first, tree = next(iter(tree.items()))
        given[parameter] = first
    given |= {parameter: example for parameter, _, example in view.free}
    for parameter, _, example in view.free:
        for odd in (*ODD, example * 20, example.replace("1", "9" * 30)):
            status, kind, text = respond(f"/api/{name}?{urlencode({**given, parameter: odd})}")
            assert kind == "json" and status in (200, 400) and (status == 400) == ("error" in json.loads(text))


@pytest.mark.parametrize("path", ["//[bad", "http://[bad/", "/%00", "/api/", "/api/?a"])
def test_odd_paths_are_answered(path: str) -> None:
    assert respond(path)[0] in (400, 404)
