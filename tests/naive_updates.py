"""The updates of DDPG, TD3 and SAC, written naively with the optimisers of optax."""

import jax
import jax.numpy as jnp
import optax


def averaged(slow, fast):
    """The slow weights after a step with tau = 0.1."""
    return jax.tree.map(lambda old, new: 0.9 * old + 0.1 * new, slow, fast)


def stepped(adam, gradient, moments, weights):
    """The weights after a step of optax's Adam, and its moments."""
    change, moments = adam.update(gradient, moments)
    return optax.apply_updates(weights, change), moments


def ddpg_step(critic_adam, actor_adam):
    """A step of critic, actor and their slow copies, with discount 0.9 and tau 0.1."""

    def squared_error(critic, batch, y):
        return jnp.mean((critic(batch.observation, batch.action) - y) ** 2)

    def negative_value(actor, critic, batch):
        return -jnp.mean(critic(batch.observation, actor(batch.observation)))

    @jax.jit
    def step(networks, batch):
        actor, critic, slow_actor, slow_critic, actor_state, critic_state = networks
        bootstrap = slow_critic(batch.next_observation, slow_actor(batch.next_observation))
        y = batch.reward + 0.9 * jnp.where(batch.terminated == 1, 0.0, bootstrap)
        critic_loss, gradient = jax.value_and_grad(squared_error)(critic, batch, y)
        critic, critic_state = stepped(critic_adam, gradient, critic_state, critic)
        actor_loss, gradient = jax.value_and_grad(negative_value)(actor, critic, batch)  # by the updated critic
        actor, actor_state = stepped(actor_adam, gradient, actor_state, actor)
        slow = averaged(slow_actor, actor), averaged(slow_critic, critic)
        return (actor, critic, *slow, actor_state, critic_state), jnp.stack([critic_loss, actor_loss])

    return step


def td3_critic_step(adam):
    """A step of both critics, with discount 0.9."""

    @jax.jit
    def step(critics, moments, slow_actor, slow_critics, batch, noise):
        a = jnp.clip(slow_actor(batch.next_observation) + jnp.clip(0.2 * noise, -0.5, 0.5), -1, 1)
        q = jnp.minimum(*(slow(batch.next_observation, a) for slow in slow_critics))
        y = batch.reward + 0.9 * (1 - batch.terminated) * q

        def loss(critics):
            return sum(jnp.mean((q(batch.observation, batch.action) - y) ** 2) for q in critics)

        value, gradient = jax.value_and_grad(loss)(critics)
        return *stepped(adam, gradient, moments, critics), value

    return step


def td3_actor_step(adam):
    """A step of the actor up the first critic, and of all slow copies, with tau 0.1."""

    @jax.jit
    def step(actor, moments, critics, slow_actor, slow_critics, states):
        gradient = jax.grad(lambda mu: -jnp.mean(critics[0](states, mu(states))))(actor)
        actor, moments = stepped(adam, gradient, moments, actor)
        return actor, moments, averaged(slow_actor, actor), averaged(slow_critics, critics)

    return step


def sac_optimisers(part):
    """Adam of optax, one for each network."""
    rates = {"policy": part.actor_rate, "temperature": part.temperature_rate}
    return {name: optax.adam(rates.get(name, part.critic_rate)) for name in ("policy", "q1", "q2", "v", "temperature")}


def sac_step(part, adams):
    """A step of all networks, of their slow copies and of the optimisers: whole losses by autodiff."""

    def smaller(one, other, s, a):
        return jnp.minimum(one(s, a), other(s, a))

    @jax.jit
    def step(networks, slow, moments, batch, noise):
        s, a, r, s_next, d = batch
        alpha = jnp.exp(networks["temperature"])
        policy = networks["policy"]

        def move(name, loss):
            gradient = jax.grad(loss)(networks[name])
            networks[name], moments[name] = stepped(adams[name], gradient, moments[name], networks[name])

        if part.critics == "twin":
            a_next, log_pi = policy.sample(s_next, noise[1])
            y = r + 0.9 * (1 - d) * (smaller(*slow, s_next, a_next) - alpha * log_pi)
            half = 1.0
        else:
            y = r + 0.9 * (1 - d) * slow(s_next)
            half = 0.5
        for name in ("q1", "q2"):
            move(name, lambda q: half * jnp.mean((q(s, a) - y) ** 2))
        q1 = networks["q1"]
        q2 = networks["q2"]
        if part.critics == "value":
            own, log_pi = policy.sample(s, noise[0])
            v = smaller(q1, q2, s, own) - alpha * log_pi
            move("v", lambda net: half * jnp.mean((net(s) - v) ** 2))
        if part.automatic:
            move("temperature", lambda x: -x * jnp.mean(log_pi - 1.0))
            alpha = jnp.exp(networks["temperature"])

        def climb(policy):
            own, log_pi = policy.sample(s, noise[0])
            return jnp.mean(alpha * log_pi - smaller(q1, q2, s, own))

        move("policy", climb)
        fast = (q1, q2) if part.critics == "twin" else networks["v"]
        return networks, averaged(slow, fast), moments

    return step
