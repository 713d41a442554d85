"""The evolvers and learners that a coupling may hold, and the checks that couplings share."""

from typing import Any, Protocol

from jax import Array

from genepool.environments.task import Task
from genepool.errors import UserError
from genepool.evolution.distribution.asynchronous import AsynchronousES
from genepool.evolution.distribution.cem import CEM
from genepool.evolution.distribution.evosax import Evosax
from genepool.evolution.distribution.openai_es import OpenAIES
from genepool.evolution.distribution.rank import RankES
from genepool.evolution.genetic.generational import GenerationalGA
from genepool.evolution.genetic.steady_state import SteadyStateGA
from genepool.learning.ddpg import DDPG
from genepool.learning.sac import SAC
from genepool.learning.td3 import TD3
from genepool.networks import Activation, Actor, Initial
from genepool.protocols import Evolver, Learner, Teacher

AnyEvolver = GenerationalGA | SteadyStateGA | CEM | AsynchronousES | RankES | OpenAIES | Evosax
AnyLearner = DDPG | TD3 | SAC


class HasHidden(Protocol):
    """A coupling that says how large its networks are."""

    @property
    def hidden(self) -> tuple[int, ...]:
        """Units of the actor's hidden layers."""
        ...


class ActorShape(HasHidden, Protocol):
    """A coupling that says what its actors are like."""

    @property
    def layer_norm(self) -> bool:
        """Whether hidden layers are normalised."""
        ...

    @property
    def activation(self) -> Activation:
        """The activation of hidden layers."""
        ...


def check_network(holder: HasHidden) -> None:
    """Refuse an actor without hidden units."""
    if not holder.hidden or min(holder.hidden) < 1:
        raise UserError(f"hidden is {tuple(holder.hidden)}: it needs one layer or more, each of 1 unit or more")


def check_learner(coupling: str, learner: object, protocol: type = Learner) -> None:
    """Refuse an object without the methods of a learner, or of a teacher if the protocol is `Teacher`."""
    if learner is None:
        raise UserError(f"{coupling} needs a learner: for an evolver alone take the preset cem or es with --evolver")
    if missing := missing_methods(learner, protocol):
        role = "teacher" if protocol is Teacher else "learner"
        raise UserError(f"{type(learner).__name__} is no {role}: it has no method {missing[0]!r}")


def check_evolver(coupling: str, evolver: object) -> None:
    """Refuse a missing evolver."""
    if evolver is None:
        raise UserError(f"{coupling} needs an evolver: for a learner alone take the preset ddpg, td3 or sac")


def check_takes_lessons(evolver: Evolver[Any]) -> None:
    """Refuse an evolver whose members must be tried unchanged."""
    if not evolver.takes_lessons:
        raise UserError(
            "this evolver estimates a gradient from the members as it made them, and a lesson would move them: "
            "use --evolver cem, or a preset without lessons, such as esac or erl"
        )


def missing_methods(part: object, protocol: type) -> list[str]:
    """The members of a protocol that a part does not offer."""
    names = [name for kind in protocol.__mro__ for name in (*vars(kind), *getattr(kind, "__annotations__", ()))]
    own = dict.fromkeys(name for name in names if not name.startswith("_"))
    return [name for name in own if not hasattr(part, name)]


def known(settings: dict[str, Any]) -> dict[str, Any]:
    """The settings without those that are None: the parts have no such field."""
    return {name: value for name, value in settings.items() if value is not None}


def sizes_of(task: Task) -> tuple[int, int]:
    """The sizes of an observation and of an action."""
    return task.observation_size, task.action_size


def new_actor(key: Array, task: Task, holder: ActorShape) -> Actor:
    """A new actor for the task, of the shape that the coupling's fields give."""
    initial: Initial = getattr(holder, "initial", "fan_in")
    return Actor(key, *sizes_of(task), holder.hidden, holder.layer_norm, holder.activation, initial)


def tune_if_due(part: object, evolver: Any, phase: bool, nominal: int, horizon: int) -> Any:
    """The evolver's state. OpenAI-ES tunes its sigma with every `phase` of the learner, or at nominal intervals."""
    if isinstance(part, OpenAIES) and part.tunes_now(phase, nominal, horizon):
        return part.tune(evolver)
    return evolver
