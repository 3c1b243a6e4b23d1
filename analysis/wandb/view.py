"""A saved view of a project in Weights & Biases: its sweeps' AUROC, and the controls, as charts."""

from __future__ import annotations

from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any

from contamination.analysis.factors import BY_COLUMN, FACTORS, Factor
from contamination.core.errors import ConfigError, describe_error, require
from contamination.core.statistics.estimates import ALL_BENCHMARKS

NAME = "Contamination"


@dataclass(frozen=True)
class WandbViewConfig:
    """The view's project, and what its charts show."""

    project: str = "contamination-testbed"
    """The project that gets the view."""
    entity: str | None = None
    """The project's owner; null: the default of whoever is logged in."""
    experiment: str | None = None
    """Show this experiment's cells only; null: all."""
    methods: list[str] = field(default_factory=lambda: ["loss", "zlib", "min_k", "min_k_plus_plus"])
    """Methods as the keys name them."""
    metric: str = "auroc"
    """The metric that the charts show."""
    benchmark: str = ALL_BENCHMARKS


def save_view(config: WandbViewConfig) -> str:
    """Makes the view in the project; its address.

    Raises:
        ConfigError: nobody is logged in, or there is no such project.
    """
    import wandb

    require(bool(config.methods), "methods", config.methods, "name at least one.")
    installed = find_spec("wandb_workspaces") is not None
    require(installed, "wandb-view", config.project, "first pip install 'wandb-workspaces>=0.4'.")
    logged_in = wandb.login(prompt=False, verify=False)
    require(logged_in, "project", config.project, "run `wandb login`, or set WANDB_API_KEY.")
    entity = config.entity or str(wandb.Api().default_entity)
    try:
        return str(build_view(config, entity).save().url)
    except (ValueError, wandb.errors.Error) as error:
        raise ConfigError(
            f"project is {config.project!r} (entity {entity}): {describe_error(error)}. "
            "Send runs first: "
            "wandb sync runs/wandb/offline-run-*"
        ) from error


def build_view(config: WandbViewConfig, entity: str) -> Any:
    """The view, not yet saved: AUROC against occurrences and each factor, and the controls."""
    from wandb_workspaces import workspaces
    from wandb_workspaces.reports.v2 import interface as charts

    keys = [f"{config.metric}/{method}/{config.benchmark}" for method in config.methods]
    curves = charts.LinePlot(
        title=f"{config.metric} by occurrences",
        x="occurrences",
        y=[f"by_occurrences/{key}" for key in keys],
        log_x=True,
    )
    factor_panels = [_scatter_panel(charts, factor, key) for factor in FACTORS for key in keys]
    controls = [f"clean/{key}" for key in keys] + [
        f"clean/{config.metric}/blind/{config.benchmark}"
    ]
    beside = [_scatter_panel(charts, BY_COLUMN["learning_rate"], key) for key in controls]
    runs: dict[str, Any] = {"groupby": [workspaces.Config("cell.condition")]}
    if config.experiment is not None:
        runs["filters"] = [workspaces.Metric("Group") == config.experiment]
    return workspaces.Workspace(
        entity=entity,
        project=config.project,
        name=NAME if config.experiment is None else f"{NAME}: {config.experiment}",
        sections=[
            workspaces.Section(name="Sweeps", panels=[curves, *factor_panels], is_open=True),
            workspaces.Section(name="Controls: 0.5 is expected", panels=beside, is_open=True),
        ],
        runset_settings=workspaces.RunsetSettings(**runs),
    )


def _scatter_panel(charts: Any, factor: Factor, key: str) -> Any:
    """Returns a panel with a point per run: a key of its summary against a fact, on a log axis."""
    return charts.ScatterPlot(
        title=f"{key} by {factor.axis}",
        x=charts.Config(f"cell.{factor.column}"),
        y=charts.SummaryMetric(key),
        log_x=True,
    )
