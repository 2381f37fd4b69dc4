"""`gifair verify SCENARIO`: digests side by side."""

from __future__ import annotations

import faulty
import pytest

from gifair_ray.cli import verify_scenario as module
from gifair_ray.errors import RunFailed
from gifair_ray.scenarios.load import load
from gifair_ray.scenarios.show import dump


@pytest.fixture
def scenario(tmp_path):
    path = tmp_path / "s.toml"
    path.write_text(dump(load(faulty.scenario("fedbuff", "GIFAIR-Per").table())))
    return str(path)


@pytest.mark.ray
@pytest.mark.usefixtures("ray_on_this_machine")
def test_every_way_has_the_same_digest(scenario, capsys):
    module.verify_scenario(scenario)
    lines = [line for line in capsys.readouterr().out.splitlines() if line[:1] in "✓✗"]
    digest = faulty.undisturbed("fedbuff", "GIFAIR-Per")
    assert len(lines) == 5
    assert all(line.startswith("✓") and line.endswith(digest) for line in lines)


def test_a_difference_is_shown_and_is_an_error(scenario, capsys, monkeypatch):
    monkeypatch.setattr(
        module, "_ways", lambda *_: iter([("one way", lambda: "aa"), ("another", lambda: "bb")])
    )
    with pytest.raises(RunFailed, match="2 different digests"):
        module.verify_scenario(scenario)
    assert "✗ another" in capsys.readouterr().out
