"""A real deployment on loopback: TLS, node keys, a killed SuperNode and a killed SuperLink."""

from __future__ import annotations

import datetime
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from sensorveil.federated import strategy
from sensorveil.federated.client import ClientDataset
from sensorveil.federated.config import FederationConfig
from sensorveil.federated.dataset import DataSource
from sensorveil.federated.server import FederatedServer
from sensorveil.federated.simulation import LocalClients
from sensorveil.methods.blinder import Blinder
from sensorveil.methods.run import load_run, save_run

BIN = Path(sys.executable).parent
PEOPLE = ("03", "05")
CONFIG = FederationConfig(epochs=1, rounds=3, client_fraction=1.0, balance=0).with_values(
    {"attempts": 9}
)


class Deployment:
    """A SuperLink with TLS on a free port, its certificate, and what was started."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.port = folder, free_port()
        self.processes: dict[str, subprocess.Popen] = {}
        write_certificate_and_keys(folder)
        self.environment = {
            **os.environ,
            "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
            "FLWR_HOME": str(folder / "home"),
            "FLWR_TELEMETRY_ENABLED": "0",
            "OMP_NUM_THREADS": "1",
        }
        (folder / "home").mkdir()
        (folder / "home" / "config.toml").write_text(
            f'[superlink]\ndefault = "lab"\n\n[superlink.lab]\naddress = "127.0.0.1:{self.port}"\n'
            f'root-certificates = "{folder / "server.crt"}"\n'
        )

    def start_link(self) -> None:
        words = (
            f"flower-superlink --host 127.0.0.1 --port {self.port} --database link.db"
            " --ssl-ca-certfile server.crt --ssl-certfile server.crt --ssl-keyfile server.key"
            " --enable-supernode-auth --disable-runtime-dependency-installation"
        )
        self._start("link", words.split())
        until(lambda: answers(self.port), "the SuperLink listens", 90)

    def start_node(self, number: int) -> None:
        config = (
            f'client={number} run="{self.folder / "start"}" data="simulated" subset="train"'
            f' person="{PEOPLE[number]}"'
        )
        words = (
            f"flower-supernode --superlink 127.0.0.1:{self.port} --port {free_port()}"
            f" --root-certificates server.crt --auth-supernode-private-key node{number}.key"
        )
        self._start(f"node{number}", [*words.split(), "--node-config", config])

    def flwr(self, *words: str) -> None:
        done = subprocess.run(
            [BIN / "flwr", *words],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stdout + done.stderr

    def kill(self, name: str) -> None:
        """SIGKILL to a process and all that it started."""
        process = self.processes.pop(name)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def _start(self, name: str, words: list[str]) -> None:
        with open(self.folder / f"{name}.log", "ab") as log:
            self.processes[name] = subprocess.Popen(
                [BIN / words[0], *words[1:]],
                cwd=self.folder,
                env=self.environment,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )


@pytest.fixture
def deployment(tmp_path):
    there = Deployment(tmp_path)
    yield there
    for name in list(there.processes):
        there.kill(name)


@pytest.mark.slow
def test_a_killed_node_and_a_killed_link_lose_nothing(deployment, tmp_path, small):
    source = DataSource("simulated")
    start = Blinder("paper", **small).fit(source.windows(), "activity", "gender")
    save_run(start, tmp_path / "start")

    deployment.start_link()
    begun = time.monotonic()
    for number in (0, 1):
        deployment.flwr("supernode", "register", f"node{number}.pub", "lab")
    # A dead node is waited for until the timeout: as long as a busy machine needs, and no longer.
    timeout = max(30.0, 8 * (time.monotonic() - begun))
    config = CONFIG.with_values({"timeout": timeout})
    for number in (0, 1):
        deployment.start_node(number)
    strategy.write_app(tmp_path / "app", tmp_path / "start", tmp_path / "run", 2, config)
    deployment.flwr("run", "app", "lab")
    until(lambda: rounds_kept(tmp_path) >= 1, "a first round", 240)
    deployment.kill("node1")
    until(lambda: rounds_kept(tmp_path) >= 2, "a round without the dead node", 300)
    deployment.kill("link")
    answered = kept(tmp_path)["rounds"][:, 1].tolist()
    assert answered == [2, 1]

    deployment.start_link()
    deployment.flwr("run", "app", "lab", "--run-config", "resume=true clients=1")
    until((tmp_path / "run" / "config.json").is_file, "the run", 300)
    ended = load_run(tmp_path / "run")

    # The same three rounds in this process, from the second one on without the dead node.
    server = FederatedServer(start.weights(), CONFIG)
    data = {
        number: ClientDataset.of(start, source.person(name), CONFIG, number)
        for number, name in enumerate(PEOPLE)
    }
    clients = LocalClients(start.loss(), data, CONFIG)
    for alive in ([0, 1], [0], [0]):
        server.sample([0, 1])
        server.aggregate(clients.updates(server.state.weights, server.number, alive))
    assert ended.metrics_["federation"]["rounds"] == 3
    torch.testing.assert_close(ended.weights(), server.state.weights, rtol=1e-4, atol=1e-5)
    assert (ended.weights() - start.weights()).abs().max() > 1e-3


def kept(folder: Path) -> dict[str, torch.Tensor]:
    place = folder / "run.unfinished" / "federation.safetensors"
    return load_file(place) if place.exists() else {}


def rounds_kept(folder: Path) -> int:
    found = kept(folder)
    return len(found["rounds"]) if found else 0


def until(ready: Callable[[], bool], what: str, seconds: float) -> None:
    end = time.monotonic() + seconds
    while not ready():
        assert time.monotonic() < end, f"{what}: not within {seconds} s"
        time.sleep(0.2)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def write_certificate_and_keys(folder: Path) -> None:
    """The server's certificate, which is its own authority, and a key pair for each node."""
    from ipaddress import ip_address

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives import serialization as to
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    def private(key, kind: to.PrivateFormat) -> bytes:
        return key.private_bytes(to.Encoding.PEM, kind, to.NoEncryption())

    server, now = ec.generate_private_key(ec.SECP256R1()), datetime.datetime.now(datetime.UTC)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    certificate = (
        x509.CertificateBuilder(name, name, server.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False
        )
        .sign(server, hashes.SHA256())
    )
    (folder / "server.crt").write_bytes(certificate.public_bytes(to.Encoding.PEM))
    (folder / "server.key").write_bytes(private(server, to.PrivateFormat.PKCS8))
    for number in range(len(PEOPLE)):
        key = ec.generate_private_key(ec.SECP384R1())
        public = key.public_key().public_bytes(to.Encoding.OpenSSH, to.PublicFormat.OpenSSH)
        (folder / f"node{number}.key").write_bytes(private(key, to.PrivateFormat.OpenSSH))
        (folder / f"node{number}.pub").write_bytes(public)
