"""TensorBoard events of a run. Only this module imports tensorboardX, and only if a run asks for it."""

from pathlib import Path
from statistics import fmean
from typing import Any

from genepool.errors import UserError


class Events:
    """Writes a record's numbers against frames."""

    def __init__(self, path: Path):
        try:
            from tensorboardX import SummaryWriter
        except ImportError:
            raise UserError("--tensorboard needs tensorboardX: pip install 'genepool[tensorboard]'") from None
        self._writer = SummaryWriter(str(path / "tensorboard"))

    def write(self, record: dict[str, Any]) -> None:
        """One generation."""
        for name, value in scalars(record).items():
            self._writer.add_scalar(name, value, record["frames"])
        self._writer.flush()


def scalars(record: dict[str, Any]) -> dict[str, float]:
    """The numbers of a record."""
    found = {
        "time/generation": record["generation"],
        "time/true_frames": record["true_frames"],
        "time/wall": record["wall"],
    }
    if record["fitness"]:
        found |= {"population/best": max(record["fitness"]), "population/mean": fmean(record["fitness"])}
    for who in ("champion", "mother", "learner"):
        if record.get(f"{who}_test"):
            found[f"test/{who}"] = fmean(record[f"{who}_test"])
    losses = {f"learner/{name}": record.get(name) for name in ("critic_loss", "actor_loss")}
    return found | {name: value for name, value in losses.items() if value is not None}
