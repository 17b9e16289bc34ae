"""An S3 server on this machine, with a bucket for each test."""

from __future__ import annotations

import itertools
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

_NUMBERS = itertools.count(1)


@pytest.fixture(scope="session")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """``127.0.0.1:PORT``; ends with the tests."""
    pytest.importorskip("moto")
    said = tmp_path_factory.mktemp("s3") / "said"
    names = {
        "AWS_ACCESS_KEY_ID": "name",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_EC2_METADATA_DISABLED": "true",
    }
    with pytest.MonkeyPatch.context() as patch, said.open("wb") as out:
        for name, value in names.items():
            patch.setenv(name, value)
        command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", "0"]
        server = subprocess.Popen(command, stdout=out, stderr=out, env={**os.environ, **names})
        try:
            while (found := re.search(r"http://(127\.0\.0\.1:[0-9]+)", said.read_text())) is None:
                assert server.poll() is None, said.read_text()
                time.sleep(0.02)
            yield found[1]
        finally:
            server.kill()
            server.wait()


@pytest.fixture
def bucket(endpoint: str) -> tuple[str, str]:
    """The URL of an empty bucket, and what follows a path in it."""
    import pyarrow.fs

    name = f"bucket-{next(_NUMBERS)}"
    system = pyarrow.fs.S3FileSystem(
        endpoint_override=endpoint, scheme="http", region="us-east-1", allow_bucket_creation=True
    )
    system.create_dir(name)
    return f"s3://{name}", f"?endpoint_override={endpoint}&region=us-east-1&scheme=http"
