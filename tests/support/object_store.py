"""An object store on this machine: moto's S3 server, a process of its own, spoken to over HTTP as a real one is."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3
import s3fs
from botocore.config import Config as ClientConfig

from tests.support.child import ROOT


@dataclass(frozen=True)
class ObjectStore:
    """The running server. `environment` is what a process needs to speak to it."""

    port: int

    @property
    def environment(self) -> dict[str, str]:
        """Endpoint and credentials, as the store's own tools take them; few tries, so that a dead server is soon told."""
        return {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self.port}",
            "AWS_ACCESS_KEY_ID": "testing",
            "AWS_SECRET_ACCESS_KEY": "testing",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_MAX_ATTEMPTS": "1",
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def client(self) -> Any:
        """A client that shares no code with fsspec's."""
        return boto3.client(
            "s3",
            endpoint_url=self.environment["AWS_ENDPOINT_URL"],
            aws_access_key_id="testing",
            aws_secret_access_key="testing",
            region_name="us-east-1",
            config=ClientConfig(retries={"total_max_attempts": 1}),
        )

    def bucket(self, name: str) -> Any:
        """A new, empty bucket's client."""
        client = self.client()
        client.create_bucket(Bucket=name)
        return client

    def tilewright(self, config: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
        """The command line on a project, as somebody would call it."""
        return subprocess.run(
            [sys.executable, "-m", "pipelines.cli", "--config", str(config), *arguments],
            cwd=ROOT,
            env={**os.environ, **self.environment},
            capture_output=True,
            text=True,
            check=False,
        )


@contextmanager
def running_store(log: Path) -> Iterator[ObjectStore]:
    """The server, started and ended."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with log.open("wb") as stream:
        server = subprocess.Popen(
            [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)], stdout=stream, stderr=stream
        )
    s3fs.S3FileSystem.clear_instance_cache()
    try:
        _wait_for(port, server, log)
        yield ObjectStore(port)
    finally:
        s3fs.S3FileSystem.clear_instance_cache()
        server.terminate()
        server.wait(10)


def _wait_for(port: int, server: subprocess.Popen[bytes], log: Path) -> None:
    until = time.monotonic() + 60
    while time.monotonic() < until:
        if server.poll() is not None:
            break
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            time.sleep(0.1)
        else:
            return
    raise RuntimeError(f"the object store did not start: {log.read_text()[-2000:]}")
