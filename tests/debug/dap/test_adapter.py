"""The adapter without a launch under control: order of requests, malformed messages, its program, its port, its end."""

import http.client
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from mmulator.observation.debug.dap.client import encode
from tests.support.protocol import Client, Session, started
from tests.support.waiting import PATIENCE, wait_until

HERE = Path(__file__).parent / "programs"


def script(folder: Path, text: str) -> Path:
    path = folder / "prog.py"
    path.write_text(text)
    return path


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


# requests ------------------------------------------------------------------------------------------------------------------
def test_requests_that_cannot_be_done_are_refused_and_the_next_is_answered() -> None:
    process, client = started()
    assert client.refused("threads") == "threads: `initialize` comes first"
    assert "pathFormat" in client.refused("initialize", adapterID="x", pathFormat="uri")
    client("initialize", adapterID="x")
    assert "called before" in client.refused("initialize", adapterID="x")
    assert client.refused("nonsense").startswith("nonsense: no request of this adapter")
    assert "launch: arguments.program is missing" in client.refused("launch")
    assert client.refused("launch", program="x", args=["a", 1]) == "launch: arguments.args[1]: a text is needed, not 1"
    assert "no such file" in client.refused("launch", program="/nowhere/prog.py").lower()
    assert "no folder" in client.refused("launch", program="x.py", cwd="/nowhere")
    assert "H1000" in client.refused("launch", program=__file__, device="H1000")
    assert "nothing was launched" in client.refused("restart")
    assert client("threads")["threads"] == [{"id": 1, "name": "the program, between launches"}]
    for command, given in {
        "stackTrace": {"threadId": 1}, "loadedSources": {}, "modules": {}, "completions": {"text": "a", "column": 1},
    }.items():  # fmt: skip
        client(command, **given)
    for command, given in {"continue": {"threadId": 1}, "scopes": {"frameId": 1}, "evaluate": {"expression": "1"}}.items():
        assert "no launch stands still" in client.refused(command, **given)
        assert client.responses[client.count]["message"] == "notStopped"
    told = client("setBreakpoints", source={"path": "/a.py"}, breakpoints=[{"line": 3}, {"line": 4}])["breakpoints"]
    again = client("setBreakpoints", source={"path": "/a.py"}, breakpoints=[{"line": 4}])["breakpoints"]
    assert [b["verified"] for b in told] == [False, False] and again[0]["id"] == told[1]["id"] != told[0]["id"]
    client("cancel", requestId=1)
    client("disconnect")
    assert process.wait(PATIENCE) == 0
    client.reader.join(PATIENCE)
    assert not client.faults


def test_malformed_messages_are_told() -> None:
    process, client = started()
    wrong = {"seq": 1, "type": "request"}, {"seq": "1", "type": "request", "command": "threads"}, {"type": "x", "seq": 7}
    for message in wrong:
        client.writes.write(encode(message))
    client.writes.write(b"Content-Length: 3\r\n\r\n{]}")
    client.writes.write(encode({"seq": 5, "type": "response", "request_seq": 1, "success": True, "command": "x"}))
    client.count = 10
    client("initialize", adapterID="x")
    client.writes.write(b"garbage\r\n\r\n")
    client.writes.flush()
    assert process.wait(PATIENCE) == 0, "nothing further can be read, so the adapter ends"
    client.reader.join(PATIENCE)
    assert not client.faults
    assert {n: r["success"] for n, r in client.responses.items()} == {1: False, 0: False, 7: False, 11: True}
    assert client.output("console").count("cannot be read") == 2


# the program ------------------------------------------------------------------------------------------------------------------
def test_a_programs_streams_and_exit_code_are_told(tmp_path: Path) -> None:
    text = """
import os, sys
print("out", sys.argv[1:], os.getcwd(), os.environ["WHO"], "HOME" in os.environ)
print("Content-Length: 5", file=sys.stderr)
assert sys.stdin.read() == ""
os.write(1, b"\\xff\\xc3\\xa9")
sys.exit(7)
"""
    with Session() as session:
        session.run(script(tmp_path, text), args=["a b", "c"], cwd=str(tmp_path), env={"WHO": "me", "HOME": None})
        assert session.ended() == 7
        assert session.client.output() == f"out ['a b', 'c'] {tmp_path} me False\n\ufffdé"
        assert session.client.output("stderr").endswith("Content-Length: 5\n")
        assert session.client("threads")["threads"]


def test_a_program_can_be_started_anew(tmp_path: Path) -> None:
    program = script(tmp_path, "import sys, time; print(sys.argv, flush=True); time.sleep(1000)")
    with Session() as session:
        session.run(program)
        first = session.client.event("process")["body"]["systemProcessId"]
        session.client.event("output")
        session.client("restart", arguments={"program": str(program), "args": ["again"]})
        second = session.client.event("process")["body"]["systemProcessId"]
        assert not alive(first) and alive(second)
        wait_until(lambda: "again" in session.client.output())
        assert not [e for e in session.client.events if e["event"] in ("terminated", "exited")]
        session.client("terminate")
        assert session.ended() == 128 + signal.SIGTERM


SLEEPER = """
import os, signal, subprocess, sys, time
if len(sys.argv) == 1:
    child = subprocess.Popen([sys.executable, sys.argv[0], "child"])
    print(os.getpid(), child.pid, flush=True)
signal.signal(signal.SIGTERM, signal.SIG_IGN)
time.sleep(1000)
"""


def processes(session: Session) -> list[int]:
    wait_until(lambda: "\n" in session.client.output())
    return [int(n) for n in session.client.output().split()]


@pytest.mark.parametrize("way", ["disconnect", "closed", "terminated"])
def test_nothing_of_the_program_is_left(way: str, tmp_path: Path) -> None:
    session = Session()
    session.run(script(tmp_path, SLEEPER))
    pids = processes(session)
    assert all(map(alive, pids))
    if way == "disconnect":
        session.client("disconnect")
    elif way == "closed":
        session.client.writes.close()
    else:
        session.process.terminate()
    session.process.wait(PATIENCE)
    wait_until(lambda: not any(map(alive, pids)))


def test_a_killed_adapter_takes_its_program_along(tmp_path: Path) -> None:
    session = Session()
    session.run(script(tmp_path, "import os, time; print(os.getpid(), flush=True); time.sleep(1000)"))
    (pid,) = processes(session)
    session.process.kill()
    session.process.wait(PATIENCE)
    wait_until(lambda: not alive(pid))


# the port ---------------------------------------------------------------------------------------------------------------------
def test_clients_of_a_port_have_programs_of_their_own(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "mmulator", "debug", "--dap", "--port", "0"]
    server = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        host, _, port = server.stdout.readline().strip().rpartition(":")
        assert host == "127.0.0.1"
        program = script(tmp_path, "import sys; print(sys.argv[1])")
        lines = [socket.create_connection((host, int(port))) for _ in range(2)]
        clients = [Client(line.makefile("rb"), line.makefile("wb")) for line in lines]
        for n, client in enumerate(clients):
            client("initialize", adapterID="x")
            client("launch", program=str(program), args=[f"client {n}"])
        for client in clients:
            client("configurationDone")
        for n, client in enumerate(clients):
            client.event("terminated")
            assert client.output() == f"client {n}\n"
            client("disconnect")
            client.reader.join(PATIENCE)
            assert not client.faults
        web = http.client.HTTPConnection(host, int(port), timeout=PATIENCE)
        web.request("POST", "/", "{}")
        said = web.sock.makefile("rb").read()
        assert said.startswith(b"Content-Length") and b"HTTP" not in said.split(b"\r\n")[0] and b"cannot be read" in said
    finally:
        server.send_signal(signal.SIGINT)
        assert server.wait(PATIENCE) == 0


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 0), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_ends_the_server_when_it_is_just_about_to_wait(number: signal.Signals, code: int) -> None:
    words = [sys.executable, "-m", "mmulator", "debug", "--dap", "--port", "0"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None and server.stdout.readline()
        server.send_signal(number)
        assert server.wait(PATIENCE) == code


def test_a_port_that_is_taken_is_told() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        words = [sys.executable, "-m", "mmulator", "debug", "--dap", "--port", str(taken.getsockname()[1])]
        done = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE, env={**os.environ, "COLUMNS": "200"})
    assert done.returncode == 1 and "cannot be used" in done.stderr and "--port 0" in done.stderr
