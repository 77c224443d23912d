"""What is said when no server runs."""

from __future__ import annotations

import pytest
from consortium import config, write_files

from mfairfl.deployment.coordinator import run_federation
from mfairfl.deployment.local import write_deployment
from mfairfl.errors import FederationError


def test_without_a_server_one_line_says_what_to_start(tmp_path):
    file = write_deployment(config(), tmp_path / "run", silos=write_files(tmp_path), deadline=5)
    with pytest.raises(FederationError, match="start `mfairfl deploy server`") as caught:
        run_federation(file, lambda line: None)
    assert "\n" not in str(caught.value)
