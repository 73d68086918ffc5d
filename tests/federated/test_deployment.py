"""A real deployment on loopback: TLS, node keys, a killed SuperNode and a killed SuperLink."""

from __future__ import annotations

import datetime
import ipaddress
import os
import signal
import socket
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from sensorveil.data.windows import Windows
from sensorveil.federated import client_app, strategy
from sensorveil.federated.client import known_classes
from sensorveil.federated.config import FederationConfig
from sensorveil.federated.dataset import DataSource
from sensorveil.federated.server import ServerState
from sensorveil.federated.simulation import federate
from sensorveil.methods.blinder import Blinder
from sensorveil.methods.run import load_run, save_run

BIN = Path(sys.executable).parent
PEOPLE = ("03", "05", "06")
# One round less is 7% more of the error; one client less from the second round on, below 1%.
CONFIG = FederationConfig(
    epochs=1,
    rounds=3,
    client_fraction=1.0,
    balance=0,
    algorithm="fedavg",
    local_steps=10,
    learning_rate=2e-4,
).with_values({"timeout": 20})


def test_the_app_names_what_the_package_has(tmp_path):
    """Flower looks for both apps by name, and for every setting of the federation."""
    strategy.write_app(tmp_path / "app", tmp_path / "start", tmp_path / "run", 3, CONFIG)
    told = tomllib.loads((tmp_path / "app" / "pyproject.toml").read_text())["tool"]["flwr"]["app"]
    for kind, wanted in (("serverapp", strategy.app), ("clientapp", client_app.app)):
        module, name = told["components"][kind].split(":")
        assert getattr(sys.modules[module], name) is wanted
    flat = flatten(told["config"]["federation"])
    assert FederationConfig().with_values(flat) == CONFIG
    assert set(flat) == set(CONFIG.flat())


def flatten(table: dict) -> dict:
    """TOML's dotted names are tables in tables; Flower flattens them again."""
    found = {}
    for name, value in table.items():
        inner = value if isinstance(value, dict) else {}
        found |= {f"{name}.{key}": one for key, one in inner.items()} or {name: value}
    return found


class Deployment:
    """A SuperLink with TLS on a free port, its certificates, and what was started."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.port = folder, free_port()
        self.processes: dict[str, subprocess.Popen] = {}
        write_certificates(folder)
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
            f'root-certificates = "{folder / "ca.crt"}"\n'
        )

    def start_link(self) -> None:
        self._start("link", self.link_words())
        until(lambda: answers(self.port), "the SuperLink listens", 90)

    def link_words(self) -> list[str]:
        return (
            f"flower-superlink --host 127.0.0.1 --port {self.port} --database link.db"
            " --ssl-ca-certfile ca.crt --ssl-certfile server.crt --ssl-keyfile server.key"
            " --enable-supernode-auth --disable-runtime-dependency-installation"
        ).split()

    def start_node(self, number: int) -> None:
        self._start(f"node{number}", self.node_words(number))

    def node_words(self, number: int) -> list[str]:
        config = (
            f'client={number} run="{self.folder / "start"}" data="simulated" subset="train"'
            f' person="{PEOPLE[number]}"'
        )
        return [
            *f"flower-supernode --superlink 127.0.0.1:{self.port} --port {free_port()}".split(),
            *("--root-certificates", "ca.crt"),
            *("--auth-supernode-private-key", f"node{number}.key"),
            *("--node-config", config),
        ]

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

    def kill_all(self) -> None:
        for name in list(self.processes):
            self.kill(name)

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
    there.kill_all()


@pytest.mark.slow
def test_a_killed_node_and_a_killed_link_lose_nothing(deployment, tmp_path, small):
    windows = DataSource("simulated").windows()
    start = Blinder("paper", beta=0.2, **small).fit(windows, "activity", "gender")
    save_run(start, tmp_path / "start")
    strategy.write_app(tmp_path / "app", tmp_path / "start", tmp_path / "run", len(PEOPLE), CONFIG)

    deployment.start_link()
    for number in range(3):
        deployment.flwr("supernode", "register", f"node{number}.pub", "lab")
        deployment.start_node(number)
    deployment.flwr("run", "app", "lab")
    until(lambda: rounds_kept(tmp_path) >= 1, "a first round", 240)
    deployment.kill("node2")
    until(lambda: rounds_kept(tmp_path) >= 2, "a round without the dead node", 300)
    deployment.kill("link")
    reached = kept(tmp_path)
    assert reached["rounds"][-1, 1] == 2  # two of three answered

    deployment.start_link()
    deployment.flwr("run", "app", "lab", "--run-config", "resume=true clients=2")
    until((tmp_path / "run" / "config.json").is_file, "the run", 300)
    ended = load_run(tmp_path / "run")
    told = ended.metrics_["federation"]
    assert told["rounds"] == CONFIG.rounds
    # Nothing that was aggregated is lost: the rounds before the stop are the ended run's.
    before = ServerState.of_tensors(reached).rounds
    assert told["bytes_by_round"][: len(before)] == [o.bytes_down + o.bytes_up for o in before]

    codes = [windows.classes["subject"].index(name) for name in PEOPLE]
    own = windows.select(np.isin(windows.subject, codes))
    whole = federate(start, own, CONFIG)
    assert error_of(whole, own) < 0.97 * error_of(start, own)  # there was something to lose
    assert error_of(ended, own) == pytest.approx(error_of(whole, own), rel=0.05)


def error_of(run: Blinder, windows: Windows) -> float:
    """Mean squared error of the output, in standard units: the output of the mean code."""
    own = windows.standardized(run.scaling_)
    _, kept, hidden = known_classes(run, windows)
    x = torch.from_numpy(own.signal)
    with torch.no_grad():
        mean, _ = run.network_.encode(x)
        onto = torch.eye(2)[torch.from_numpy(hidden[:, 0])]
        of = torch.eye(run.network_.num_kept)[torch.from_numpy(kept)]
        return float((run.network_.decode(mean, onto, of) - x).square().mean())


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
        time.sleep(0.5)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def write_certificates(folder: Path) -> None:
    """A certificate authority, the server's certificate, and a key pair for each node."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    coding, nothing = serialization.Encoding, serialization.NoEncryption()
    pem = serialization.PrivateFormat.PKCS8

    def name(text: str) -> x509.Name:
        return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])

    def certificate(subject: str, key, issuer_key, *extensions) -> x509.Certificate:
        now = datetime.datetime.now(datetime.UTC)
        builder = (
            x509.CertificateBuilder(name("test authority"), name(subject), key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(hours=1))
            .not_valid_after(now + datetime.timedelta(days=1))
        )
        for extension in extensions:
            builder = builder.add_extension(extension, critical=False)
        return builder.sign(issuer_key, hashes.SHA256())

    authority, server = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    root = certificate(
        "test authority", authority, authority, x509.BasicConstraints(ca=True, path_length=None)
    )
    names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    own = certificate("localhost", server, authority, x509.SubjectAlternativeName(names))
    (folder / "ca.crt").write_bytes(root.public_bytes(coding.PEM))
    (folder / "server.crt").write_bytes(own.public_bytes(coding.PEM))
    (folder / "server.key").write_bytes(server.private_bytes(coding.PEM, pem, nothing))
    ssh = serialization.PrivateFormat.OpenSSH
    for number in range(3):
        key = ec.generate_private_key(ec.SECP384R1())
        (folder / f"node{number}.key").write_bytes(key.private_bytes(coding.PEM, ssh, nothing))
        (folder / f"node{number}.pub").write_bytes(
            key.public_key().public_bytes(coding.OpenSSH, serialization.PublicFormat.OpenSSH)
        )
