"""What crosses the wire: what a candidate costs in bytes, and what is shared by reference."""

import equinox as eqx
import jax
import numpy as np
import pytest
import ray
from tiny_ray import leaves, own_cluster

import genepool
from genepool.networks import Actor
from genepool.types import Candidate, Individual
from genepool.workers.ray import wire


@pytest.fixture(scope="module")
def cluster():
    yield from own_cluster()


class Store:
    """Stands for Ray's: a reference is a number."""

    def __init__(self):
        self.objects, self.fetched = [], 0

    def put(self, block):
        self.objects.append(block.copy())
        return Reference(len(self.objects) - 1)

    def get(self, references):
        if isinstance(references, list):
            self.fetched += sum(self.objects[reference].nbytes for reference in references)
            return [self.objects[reference] for reference in references]
        return self.objects[references]

    @property
    def bytes(self):
        return sum(block.nbytes for block in self.objects)


class Reference(int):
    def hex(self):
        return str(int(self))


class Untaken(eqx.Module):
    """A lesson of AES-RL's shape."""

    critic: list
    states: jax.Array
    key: jax.Array

    def __call__(self, actor):
        return actor


def test_a_candidate_costs_the_bytes_of_its_actor_and_what_is_shared_goes_as_references(cluster):
    """HalfCheetah with 400-300: what goes out for an AES-RL candidate with a lesson."""
    actors = [Actor(jax.random.key(k), 17, 6, (400, 300)) for k in range(3)]
    critics = [Actor(jax.random.key(7 + k), 23, 1, (400, 300)) for k in range(2)]
    ring, noise = jax.random.normal(jax.random.key(3), (200_000, 17)), np.zeros((1000, 6), np.float32)
    weights = sum(leaf.nbytes for leaf in leaves(actors[0]))
    assert weights == 522_824
    store = Store()
    sender, receiver = wire.Sender(store.put, store.get), wire.Receiver(store.get)

    def cost(k, ring, mean):
        """Bytes in the message, put into the store, and fetched from it."""
        lesson = Untaken(critics, ring, jax.random.PRNGKey(k))
        own, shared = {"noise": noise, "number": k}, {"lesson": lesson, "reference": mean}
        candidate = Candidate(Individual(actors[k], np.zeros(10**6)), (k,), reference_seeds=(k,), **own, **shared)
        before = store.bytes, store.fetched
        message, references = sender.pack(candidate)
        there = receiver.unpack(message, references)
        parts = lambda c: leaves((c.individual.actor, c.lesson, c.reference, c.noise))
        assert all(np.array_equal(x, y) for x, y in zip(parts(there), parts(candidate), strict=True))
        assert there.individual.memory is None
        return len(message), store.bytes - before[0], store.fetched - before[1], references

    _, put, fetched, _ = cost(0, ring, actors[2])
    assert 13_600_000 + 3 * 500_000 < put == fetched < 15_300_000  # the ring of states, two critics, the mean: once
    copied = jax.tree.map(np.array, actors[2])  # the same mean, made again, as ask does
    message, put, fetched, references = cost(1, ring, copied)
    assert (put, fetched) == (0, 0)
    assert message - weights - noise.nbytes < 45_000  # arrays below 16 KB: biases, norms and last layers
    written = ring.at[1000:2000].set(0.0)  # after an episode was told
    _, put, fetched, _ = cost(0, written, actors[2])
    assert put == fetched == wire.BLOCK
    stored = {name: [ray.put(0) for _ in blocks] for name, blocks in references.items()}
    serializer = ray._private.worker.global_worker.get_serialization_context()
    count, size = sum(len(blocks) for blocks in stored.values()), serializer.serialize(stored).total_bytes
    assert count == 10
    assert size < 200 * count


def test_a_member_of_an_evolution_strategy_costs_a_seed_and_a_reference():
    store, like = Store(), Actor(jax.random.key(0), 17, 6, (512, 512), False, "relu")
    new = lambda _: Individual(jax.tree.map(np.asarray, like), None)
    sender, part = wire.Sender(store.put, store.get), genepool.OpenAIES(winners=0.0, injected=0, crossover=None)
    members, _ = part.ask(jax.random.key(0), part.init(jax.random.key(0), new), range(100), None)
    assert len(members) == 100
    messages = [sender.pack(member)[0] for member in members]
    assert max(map(len, messages)) < 20_000  # biases and the last layer, which are too small to be shared
    assert store.bytes < 1_200_000  # the mother's weights, once


def test_what_a_ring_does_not_hold_yet_costs_next_to_nothing():
    """Humanoid's states: of the 1.5 GB that a million rows take (here a part), only the filled blocks are stored."""
    store, ring = Store(), np.zeros((40_000, 376), np.float32)
    sender, receiver = wire.Sender(store.put, store.get), wire.Receiver(store.get)
    for filled, blocks in ((5_000, 2), (10_000, 4), (10_100, 4), (40_000, 15)):
        ring[:filled] = np.arange(filled)[:, None] + 1.0
        message, references = sender.pack(Candidate(Individual(None, None), reference=ring))
        assert np.array_equal(receiver.unpack(message, references).reference, ring)
        assert store.bytes == store.fetched
        held = {reference: store.objects[reference].nbytes for each in references.values() for reference in each}
        assert sum(held.values()) <= (blocks + 2) * wire.BLOCK  # the first of zeros, and the short one at the end
