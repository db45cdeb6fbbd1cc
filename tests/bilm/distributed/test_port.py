from __future__ import annotations

import socket

import pytest

from bilm.distributed.port import check_port
from bilm.errors import ConfigError


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """The environment of rank 0 of two."""
    monkeypatch.delenv("TORCHELASTIC_USE_AGENT_STORE", raising=False)
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    return monkeypatch


@pytest.mark.parametrize("address", ["127.0.0.1", "0.0.0.0"])
def test_rejects_port_in_use(address: str, launched: pytest.MonkeyPatch) -> None:
    with socket.create_server((address, 0)) as other:
        port = other.getsockname()[1]
        launched.setenv("MASTER_PORT", str(port))
        with pytest.raises(ConfigError, match=f"port {port}.* in use.*--master_port"):
            check_port()
    check_port()  # the port is free again


def test_accepts_port_of_closing_connections(launched: pytest.MonkeyPatch) -> None:
    """The side that closes first keeps its port in TIME_WAIT."""
    with socket.create_server(("127.0.0.1", 0)) as earlier:
        port = earlier.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)) as client:
            earlier.accept()[0].close()
            assert client.recv(1) == b""
    launched.setenv("MASTER_PORT", str(port))
    check_port()


@pytest.mark.parametrize(
    "change",
    [{"RANK": "1"}, {"WORLD_SIZE": "1"}, {"TORCHELASTIC_USE_AGENT_STORE": "True"}],
)
def test_ignores_port_that_this_process_does_not_use(
    change: dict[str, str], launched: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        launched.setenv("MASTER_PORT", str(other.getsockname()[1]))
        for name, value in change.items():
            launched.setenv(name, value)
        check_port()
