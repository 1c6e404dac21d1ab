"""`deploy/compose.yaml` and `deploy/kubernetes.yaml`: no cluster runs here, but what they say must
agree with our settings, our commands and each other."""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest

from counts import FULL
from dragoman import Agent
from dragoman.bell.nats import NatsBell
from dragoman.server.bells import bell_for
from dragoman.settings import Settings, load
from dragoman.testing import served
from pages import ROOT
from security.certs import Authority

DEPLOY = ROOT / "deploy"
DOCKERFILE = (DEPLOY / "Dockerfile").read_text("utf-8")
PORT = Settings().server.port
INSTALLED = importlib.util.find_spec("yaml") is not None
needs_yaml = pytest.mark.skipif(
    not (INSTALLED or FULL), reason="make docs installs PyYAML, make test-full too"
)
NGINX = shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin")


def documents(name: str) -> list[dict[str, Any]]:
    return list(importlib.import_module("yaml").safe_load_all((DEPLOY / name).read_text("utf-8")))


def settings_of(environ: dict[str, str]) -> Settings:
    """The settings of a container, whose secrets are made up."""
    given = {name: value if "$" not in value else "x" * 32 for name, value in environ.items()}
    dockerfile = re.search(r"^ENV (.+)$", DOCKERFILE, re.M)
    assert dockerfile
    built = dict(word.split("=", 1) for word in shlex.split(dockerfile[1]))
    return load(environ={**built, **given}, config=DEPLOY / "dragoman.toml")


def check_settings(settings: Settings, hosts: set[str]) -> None:
    server = settings.server
    assert server.store.startswith("postgresql:")
    assert isinstance(bell_for(settings), NatsBell)
    assert {urlsplit(server.store).hostname, urlsplit(server.bell).hostname} <= hosts
    assert server.trusted_proxies
    assert server.public_url.startswith("https://")


@pytest.mark.parametrize("name", ["Dockerfile", "compose.yaml", "kubernetes.yaml"])
def test_what_was_never_run_says_so_first(name: str) -> None:
    first = (DEPLOY / name).read_text("utf-8").partition("\n")[0]
    assert first.startswith(("# Never run here", "# Never built here", "# Never applied here"))
    (test,) = re.findall(r"`(tests/[\w/.]+)`", first)
    assert (ROOT / test).is_file()


@needs_yaml
def test_the_compose_file_agrees_with_our_settings_and_its_own_names() -> None:
    (file,) = documents("compose.yaml")
    services = file["services"]
    assert set(services) == {"agent", "proxy", "postgres", "nats"}
    agent, proxy = services["agent"], services["proxy"]
    assert agent["deploy"]["replicas"] == 3
    settings = settings_of(agent["environment"])
    check_settings(settings, set(services))
    assert agent["environment"]["DRAGOMAN_SECRET_KEY"] == "${DRAGOMAN_SECRET_KEY:?}"
    # The database and its role exist: the image makes a database with the name of the role.
    store = urlsplit(settings.server.store)
    assert store.username == services["postgres"]["environment"]["POSTGRES_USER"]
    assert store.path == f"/{store.username}"
    assert int(agent["stop_grace_period"].removesuffix("s")) >= 10  # less than 5 are needed
    for service in services.values():
        assert set(service.get("depends_on", {})) <= set(services)
        for volume in service.get("volumes", []):
            source = volume.partition(":")[0]
            if source != "./tls":
                assert source in file["volumes"] or (DEPLOY / source).is_file(), source
    assert f"EXPOSE {PORT}\n" in DOCKERFILE
    assert f"agent:{PORT}" in proxy["command"]


@needs_yaml
@pytest.mark.slow  # starts nginx
def test_nginx_takes_the_configuration_that_the_compose_file_gives_it(tmp_path: Path) -> None:
    if NGINX is None:
        pytest.skip("nginx is not installed, and `make debian` could not")
    (file,) = documents("compose.yaml")
    shell = shlex.split(file["services"]["proxy"]["command"])[2]
    # The same command, with other places, without the names of containers, and only a check.
    cert, key = Authority(tmp_path).issue("edge")
    for old, new in {
        "/deploy/nginx.conf": str(DEPLOY / "nginx.conf"),
        "/etc/nginx/nginx.conf": f"{tmp_path}/nginx.conf",
        f"agent:{PORT}": f"localhost:{PORT}",
        "exec nginx -g 'daemon off;'": "true",
    }.items():
        assert old in shell, old
        shell = shell.replace(old, new)
    subprocess.run(["sh", "-c", shell], check=True)
    path = tmp_path / "nginx.conf"
    text = path.read_text()
    assert f"server localhost:{PORT};" in text
    text = text.replace("/etc/ssl/desk.example.com.pem", cert)
    path.write_text(text.replace("/etc/ssl/desk.example.com.key", key))
    own = f"pid {tmp_path}/pid; error_log stderr;"
    done = subprocess.run(
        [NGINX, "-t", "-p", str(tmp_path), "-c", str(path), "-g", own],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@needs_yaml
def test_the_manifests_agree_with_our_settings_and_each_other() -> None:
    found = {each["kind"]: each for each in documents("kubernetes.yaml")}
    assert set(found) == {"Deployment", "Service", "PodDisruptionBudget"}
    spec = found["Deployment"]["spec"]
    labels = spec["template"]["metadata"]["labels"]
    assert spec["selector"]["matchLabels"] == labels
    assert found["Service"]["spec"]["selector"] == labels
    budget = found["PodDisruptionBudget"]["spec"]
    assert budget["selector"]["matchLabels"] == labels
    assert 0 < budget["maxUnavailable"] < spec["replicas"]
    pod = spec["template"]["spec"]
    (container,) = pod["containers"]
    environ = {each["name"]: each.get("value", "$secret") for each in container["env"]}
    check_settings(settings_of(environ), {"postgres", "nats"})
    # The secrets that the file tells the operator to make are those that it uses.
    used = {
        each["valueFrom"]["secretKeyRef"]["key"] for each in container["env"] if "valueFrom" in each
    }
    comment = (DEPLOY / "kubernetes.yaml").read_text("utf-8").partition("apiVersion")[0]
    assert all(key in comment for key in used)
    assert [each["containerPort"] for each in container["ports"]] == [PORT]
    # A pod stops in time: first the pause, then less than 5 seconds of ours.
    pause = int(container["lifecycle"]["preStop"]["exec"]["command"][1])
    assert pause > container["readinessProbe"]["periodSeconds"]
    assert pod["terminationGracePeriodSeconds"] >= pause + 10
    command = re.search(r"^CMD (.+)$", DOCKERFILE, re.M)
    assert command
    assert json.loads(command[1])[0] == "dragoman"
    assert "command" not in container  # that of the image


@needs_yaml
async def test_the_probes_ask_for_what_the_server_answers() -> None:
    found = {each["kind"]: each for each in documents("kubernetes.yaml")}
    (container,) = found["Deployment"]["spec"]["template"]["spec"]["containers"]
    asked = {
        kind: container[kind]["httpGet"]["path"] for kind in ("readinessProbe", "livenessProbe")
    }
    assert asked == {"readinessProbe": "/readyz", "livenessProbe": "/healthz"}
    async with served(Agent("Desk")) as url, httpx2.AsyncClient(base_url=url) as client:
        for path in asked.values():
            assert (await client.get(path)).status_code == 200
