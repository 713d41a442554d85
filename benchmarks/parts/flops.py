"""How many FLOPs the matrix products of an update need, counted by hand."""

from collections.abc import Sequence
from itertools import pairwise

BRANCH, JOINT = 200, 300  # the critic's layers


def update_flops(observation: int, action: int, hidden: Sequence[int] = (128, 128), batch: int = 128) -> int:
    """FLOPs of the matrix products that one DDPG update needs at least, 2 per multiply-add.

    A layer of m inputs and n units costs m n multiply-adds per state forward, m n for the gradient of its weights and
    m n for that of its inputs. The gradient of a first layer's inputs is not needed, except the critic's of the
    action. So, with A and C for a whole actor or critic forward:

        y = r + gamma Q'(s', mu'(s'))    A + C
        critic, Q(s, a)                  C, C for the weights, and back to both branches
        actor, Q(s, mu(s))               A + C, back through the critic by the action's branch alone, A for the weights,
                                         and back to the hidden layers

    That is 756,536 multiply-adds for 17 observations and 6 actions, 193.67 MFLOP for a batch of 128. Element-wise work
    (layer norm, tanh, Adam, the slow targets) is not counted.
    """
    actor, actor_back = actor_multiply_adds(observation, action, hidden)
    critic = critic_multiply_adds(observation, action)
    critic_back = JOINT + 2 * BRANCH * JOINT
    action_back = JOINT + BRANCH * JOINT + action * BRANCH
    critic_step = critic + critic + critic_back
    actor_step = actor + critic + action_back + actor + actor_back
    return 2 * batch * (actor + critic + critic_step + actor_step)


def usual_flops(observation: int, action: int, hidden: Sequence[int] = (128, 128), batch: int = 128) -> int:
    """FLOPs of one DDPG update as usually counted: a network's forward pass, and twice as many for its gradients.

        y = r + gamma Q'(s', mu'(s'))    A + C
        critic, Q(s, a)                  3 C
        actor, Q(s, mu(s))               3 (A + C)

    That is 951,612 multiply-adds, 243.61 MFLOP, some of them for gradients that are not needed
    (see `update_flops`). The benchmark's targets refer to this count.
    """
    actor, _ = actor_multiply_adds(observation, action, hidden)
    critic = critic_multiply_adds(observation, action)
    return 2 * batch * (4 * actor + 7 * critic)


def distillation_flops(observation: int, action: int, memory: int, steps: int, batch: int) -> int:
    """FLOPs that the matrix products of one child need: `steps` of the actor forward and back, and the targets.

    The targets take both parents' actors and the critic twice on every state of the memory. The state's half of the
    critic is the same both times, and is counted twice.
    """
    actor, actor_back = actor_multiply_adds(observation, action)
    targets = 2 * memory * (actor + critic_multiply_adds(observation, action))
    return 2 * (steps * batch * (actor + actor + actor_back) + targets)


def actor_multiply_adds(observation: int, action: int, hidden: Sequence[int] = (128, 128)) -> tuple[int, int]:
    """Multiply-adds per state of an actor: forward, and back to its hidden layers."""
    layers = [m * n for m, n in pairwise((observation, *hidden, action))]
    return sum(layers), sum(layers[1:])


def critic_multiply_adds(observation: int, action: int) -> int:
    """Multiply-adds per state of a critic, forward."""
    return (observation + action) * BRANCH + 2 * BRANCH * JOINT + JOINT


def lessons_flops(observation: int, action: int, batch: int, critic_steps: int, actor_steps: int) -> int:
    """FLOPs that the matrix products of TD3's critic steps and of lessons need, actor and critics of 400-300.

    A critic step: the target policy and both target critics forward; both critics forward, for their weights, and back
    to the hidden layers. A step of a lesson: actor and first critic forward, back through the critic to the action, and
    the actor's weights and hidden layers.
    """
    actor, actor_back = actor_multiply_adds(observation, action, (400, 300))
    critic, critic_back = actor_multiply_adds(observation + action, 1, (400, 300))
    critic_step = actor + 2 * critic + 2 * (critic + critic + critic_back)
    actor_step = actor + critic + critic_back + action * 400 + actor + actor_back
    return 2 * batch * (critic_steps * critic_step + actor_steps * actor_step)


def mutation_flops(observation: int, action: int, samples: int, sharing: int) -> int:
    """FLOPs of one update of PPO (64-64, ten steps) and its critic (32-32, ten steps) on the samples of all policies.

    Forward, for the weights, and back to the hidden layers; the policy's on the rows of `sharing` policies.
    Advantages and probabilities take one more forward pass of the policy and two of the critic.
    """
    policy, policy_back = actor_multiply_adds(observation, action, (64, 64))
    critic, critic_back = actor_multiply_adds(observation, 1, (32, 32))
    steps = 10 * (sharing * (2 * policy + policy_back) + 2 * critic + critic_back)
    return 2 * samples * (steps + policy + 2 * critic)
