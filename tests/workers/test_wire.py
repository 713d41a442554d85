"""How many bytes are sent for a candidate, and what is sent as references."""

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
    """Stands for Ray's store. A reference is a number."""

    def __init__(self):
        self.objects = []
        self.fetched = 0

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
    """A lesson with the arrays of AES-RL's, which changes nothing."""

    critic: list
    states: jax.Array
    key: jax.Array

    def __call__(self, actor):
        return actor


def test_a_candidate_costs_the_bytes_of_its_actor_and_shared_arrays_are_sent_as_references(cluster):
    """HalfCheetah with 400-300: an AES-RL candidate with a lesson."""
    actors = [Actor(jax.random.key(k), 17, 6, (400, 300)) for k in range(3)]
    critics = [Actor(jax.random.key(7 + k), 23, 1, (400, 300)) for k in range(2)]
    ring = jax.random.normal(jax.random.key(3), (200_000, 17))
    noise = np.zeros((1000, 6), np.float32)
    weights = sum(leaf.nbytes for leaf in leaves(actors[0]))
    assert weights == 522_824
    store = Store()
    sender = wire.Sender(store.put, store.get)
    receiver = wire.Receiver(store.get)

    def cost(k, ring, mean):
        """Bytes in the message, put into the store, and fetched from it."""
        lesson = Untaken(critics, ring, jax.random.PRNGKey(k))
        own = {"noise": noise, "number": k}
        shared = {"lesson": lesson, "reference": mean}
        candidate = Candidate(Individual(actors[k], np.zeros(10**6)), (k,), reference_seeds=(k,), **own, **shared)
        before = store.bytes, store.fetched
        message, references = sender.pack(candidate)
        there = receiver.unpack(message, references)
        sent, received = (leaves((c.individual.actor, c.lesson, c.reference, c.noise)) for c in (candidate, there))
        assert all(np.array_equal(x, y) for x, y in zip(sent, received, strict=True))
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
    count = sum(len(blocks) for blocks in stored.values())
    size = serializer.serialize(stored).total_bytes
    assert count == 10
    assert size < 200 * count


def test_a_member_of_an_evolution_strategy_costs_a_seed_and_a_reference():
    store = Store()
    actor = jax.tree.map(np.asarray, Actor(jax.random.key(0), 17, 6, (512, 512), False, "relu"))
    sender = wire.Sender(store.put, store.get)
    evolver = genepool.OpenAIES(winners=0.0, injected=0, crossover=None)
    state = evolver.init(jax.random.key(0), lambda _: Individual(actor, None))
    members, _ = evolver.ask(jax.random.key(0), state, range(100), None)
    assert len(members) == 100
    messages = [sender.pack(member)[0] for member in members]
    assert max(map(len, messages)) < 20_000  # biases and the last layer, which are too small to be shared
    assert store.bytes < 1_200_000  # the mother's weights, once


def test_the_empty_rows_of_a_ring_cost_next_to_nothing():
    """Humanoid's states: of the 1.5 GB of a million rows (here fewer), only the filled blocks are stored."""
    store = Store()
    ring = np.zeros((40_000, 376), np.float32)
    sender = wire.Sender(store.put, store.get)
    receiver = wire.Receiver(store.get)
    for filled, blocks in ((5_000, 2), (10_000, 4), (10_100, 4), (40_000, 15)):
        ring[:filled] = np.arange(filled)[:, None] + 1.0
        message, references = sender.pack(Candidate(Individual(None, None), reference=ring))
        assert np.array_equal(receiver.unpack(message, references).reference, ring)
        assert store.bytes == store.fetched
        held = {reference: store.objects[reference].nbytes for each in references.values() for reference in each}
        assert sum(held.values()) <= (blocks + 2) * wire.BLOCK  # the first of zeros, and the short one at the end
