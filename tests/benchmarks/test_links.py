"""The simulated machines of benchmarks/links.py (root only), and its tables in docs/cluster.md."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys

import pytest

from tests.conftest import ROOT

sys.path.insert(0, str(ROOT / "benchmarks"))

import links_page
from links_network import Network, sent_bytes, shape

SEND = """
import socket, sys, time
address = (sys.argv[1], 5000)
if sys.argv[2] == "receive":
    with socket.create_server(address) as server, server.accept()[0] as connection:
        connection.sendall(b"x")
        while connection.recv(1 << 16):
            pass
else:
    for _ in range(200):
        try:
            connection = socket.create_connection(address, timeout=60)
            break
        except OSError:
            time.sleep(0.05)
    connection.recv(1)
    connection.sendall(bytes(1_000_000))
    connection.close()
"""


def namespaces() -> str:
    return subprocess.run(["ip", "netns", "list"], capture_output=True, text=True).stdout


@pytest.mark.skipif(
    sys.platform != "linux" or os.geteuid() != 0 or shutil.which("tc") is None,
    reason="needs root and iproute2",
)
def test_counts_bytes_with_headers_and_removes_machines() -> None:
    network = Network(2)
    try:
        send_and_interrupt(network)
    except RuntimeError as error:  # such as in a container
        pytest.skip(f"the system permits no network namespaces: {error}")
    except KeyboardInterrupt:
        pass
    assert not any(name in namespaces() for name in (network.hub, *network.names))


def send_and_interrupt(network: Network) -> None:
    with network:
        assert all(name in namespaces() for name in (network.hub, *network.names))
        shape(network.names, network.hub, 100_000_000)
        command = [sys.executable, "-c", SEND, network.address(1)]
        receiver = network.start(1, [*command, "receive"], dict(os.environ))
        sender = network.start(0, [*command, "send"], dict(os.environ))
        for process in (sender, receiver):
            _, errors = process.communicate(timeout=60)
            assert process.returncode == 0, errors
        assert sent_bytes(network.names[0]) == pytest.approx(1e6 * (1 + 66 / 1448), rel=0.01)
        raise KeyboardInterrupt


def test_page_shows_stored_figures() -> None:
    lines = links_page.FIGURES.read_text(encoding="utf-8").splitlines()
    figures = [json.loads(line) for line in lines]
    page = links_page.PAGE.read_text(encoding="utf-8")
    assert links_page.validation(figures) in page
    assert links_page.comparison(figures) in page
