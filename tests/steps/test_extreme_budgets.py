"""What `synth plan` accepts is released, however large or small its budget is."""

import pytest
from support.small_release import run_all, write_release

from synth_core.errors import SynthError
from synth_core.ledger.sql import open_ledger
from synth_core.privacy.budget import LEAST_VARIANCE, mu2_of
from synth_core.release.paths import ReleasePaths
from synth_core.release.verify import check_release
from synth_core.steps import cost, prepare


@pytest.mark.parametrize("method", ["privbayes", "privmn", "privmrf"])
def test_a_budget_of_epsilon_100_is_released_and_not_spent_beyond_the_least_noise(tmp_path, method):
    """Before, every question was charged and the release then failed on the variance of its noise."""
    workspace = tmp_path / "workspace"
    spec = write_release(tmp_path, cap=100.0, epsilon=100.0, method=method)
    cost(spec, workspace=workspace)
    run_all(spec, workspace)
    assert check_release(ReleasePaths(workspace, "r1").public).sound
    asked = [record.mechanism for record in open_ledger(workspace).records() if record.mechanism.count]
    gaussian = [one for one in asked if one.name == "discrete_gaussian"]
    assert min(min(one.variances()) for one in gaussian) >= LEAST_VARIANCE
    assert open_ledger(workspace).balance("people").charged_mu2 <= mu2_of(100.0, 1e-6)


@pytest.mark.parametrize(
    "tiny",
    [{"epsilon": 1e-2}, {"epsilon": 1e-6}, {"epsilon": 1e-300}, {"quality_share": 1e-15}, {"quality_share": 1e-6}],
)
def test_a_tiny_budget_is_released_or_refused_before_anything_is_charged(tmp_path, tiny):
    """Before, a tiny share was found out in the last step, when all else was spent."""
    workspace = tmp_path / "workspace"
    spec = write_release(tmp_path, **{"method": "independent", "rows": 100} | tiny)
    try:
        cost(spec, workspace=workspace)
        address = prepare(spec, workspace=workspace)
    except SynthError:
        assert open_ledger(workspace).balance("people").charged_mu2 == 0
        return
    run_all(spec, workspace)
    assert check_release(ReleasePaths.of_address(address).public).sound
