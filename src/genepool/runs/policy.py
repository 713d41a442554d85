"""A trained policy: saved, loaded, and asked for actions as in Stable-Baselines3."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import jax
import numpy as np

from genepool.environments.spaces import Spaces
from genepool.errors import UserError
from genepool.networks import ACTIVATIONS, Actor
from genepool.networks.stochastic import StochasticPolicy
from genepool.runs import checkpoint


class Policy:
    """An actor and the range of its task's actions."""

    def __init__(self, actor: Actor | StochasticPolicy, spaces: Spaces, facts: dict[str, Any] | None = None):
        self.actor = actor
        self.spaces = spaces
        self.facts = facts or {}
        self._act = jax.jit(lambda rows: actor(rows))

    def predict(
        self, observation: Any, state: Any = None, episode_start: Any = None, deterministic: bool = True
    ) -> tuple[np.ndarray, None]:
        """The actions for one observation or a batch, in the environment's range; integers if actions are discrete.

        The signature is Stable-Baselines3's. The policy is deterministic and has no state: the other arguments are
        ignored.
        """
        observation = np.asarray(observation, np.float32)
        shape = self.spaces.observation_shape
        single = observation.shape == shape
        if not single and observation.shape[1:] != shape:
            raise ValueError(
                f"the policy takes observations of shape {shape} or batches of them, not {observation.shape}"
            )
        rows = observation.reshape(-1, self.spaces.observation_size)
        actions = self.spaces.to_environment(np.asarray(self._act(rows)))
        return (actions[0, ...] if single else actions), None  # an array, also for one discrete action

    def save(self, path: str | Path) -> None:
        """Write the policy as safetensors and JSON."""
        actor = self.actor
        network = {"sizes": actor.sizes, "activation": actor.activation}
        if isinstance(actor, StochasticPolicy):
            network |= {"discrete": actor.log_std is None, "normalise": actor.scale is not None}
        else:
            network |= {"layer_norm": actor.layer_norm}
        facts = network | {"spaces": asdict(self.spaces), "facts": self.facts}
        checkpoint.save(Path(path), self.actor, {"policy": facts})


def load(path: str | Path) -> Policy:
    """The policy in a file, or the champion of a run folder. Loading never runs code from the file."""
    path = Path(path)
    file = path / "champion.safetensors" if path.is_dir() else path
    if path.is_dir() and not file.exists():
        raise UserError(f"{path} has no champion yet: train it further, or give another run folder")
    facts = checkpoint.read(file)[1]
    if "policy" not in facts:
        raise UserError(f"{file} is a checkpoint, not a policy: give the run folder or its champion.safetensors")
    facts = facts["policy"]
    observation_size, *hidden, action_size = facts["sizes"]
    if facts["activation"] not in ACTIVATIONS:
        raise UserError(f"{file} has unknown units {facts['activation']!r}: load it with the version that wrote it")
    sizes = jax.random.key(0), observation_size, action_size, hidden
    if "discrete" in facts:
        like = StochasticPolicy(*sizes, facts["discrete"], facts["normalise"], facts["activation"])
    else:
        like = Actor(*sizes, facts["layer_norm"], facts["activation"])
    actor, _ = checkpoint.load(file, like)
    spaces = {name: tuple(value) if isinstance(value, list) else value for name, value in facts["spaces"].items()}
    return Policy(actor, Spaces(**spaces), facts["facts"])
