"""Ray workers: the same outcomes as here, whoever plays them and whatever happens to the players."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import ray
from tasks import Reach

import genepool
from genepool import trees
from genepool.environments.task import Task
from genepool.errors import UserError
from genepool.evolution.steady import SteadyState
from genepool.learning.ppo import Critic
from genepool.networks import Actor
from genepool.schedule import Clock, asynchronous, synchronous
from genepool.types import Candidate, Individual, Learnt, Outcome
from genepool.workers import wire
from genepool.workers.cluster import start
from genepool.workers.ray import RayWorkers

BREAKS, DOZES, DIES = 7, 11, 13  # seeds of episodes in which something happens


class Troubled(Reach):
    """By its seed an episode raises, takes two seconds to begin, or takes its process with it.

    The first episode with a seed that the folder names writes down its process and stalls.
    """

    def __init__(self, folder):
        self.folder = Path(folder)

    def reset(self, *, seed=None, options=None):
        self.seed, mark = seed, self.folder / str(seed)
        if mark.exists():
            mark.write_text(str(os.getpid()))  # before anybody may look for it
            mark.rename(self.folder / f"{seed}.stalled")
            time.sleep(600)
        if seed == DOZES:
            time.sleep(2.0)
        if seed == DIES:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().reset(seed=seed)

    def step(self, action):
        if self.seed == BREAKS:
            raise RuntimeError("the joint broke")
        return super().step(action)


class Nudge(eqx.Module):
    """A lesson: the actor moves a little towards what the states say."""

    states: jax.Array
    key: jax.Array
    steps: int = eqx.field(static=True)

    @eqx.filter_jit
    def __call__(self, actor):
        def loss(actor):
            return jnp.mean((jax.vmap(actor)(self.states[:, :1]) - jax.random.uniform(self.key)) ** 2)

        for _ in range(self.steps):
            actor = jax.tree.map(lambda x, g: x - 0.01 * g, actor, jax.grad(loss)(actor))
        return actor


def make(environment, *arguments):
    return Task(environment.__name__, make=partial(environment, *arguments))


REACH = make(Reach)


def everyone(n=8, task=REACH, memory=None):
    """Candidates of every kind: plain, exploring, with a lesson, with a reference, with a memory."""
    keys = jax.random.split(jax.random.key(0), n)
    actors = [Actor(key, task.observation_size, task.action_size, (16, 16)) for key in keys]
    states = jax.random.normal(jax.random.key(1), (2000, 4))
    noise = 0.3 * np.random.default_rng(1).standard_normal((task.horizon, task.action_size)).astype(np.float32)
    found = []
    for k, actor in enumerate(actors):
        lesson = Nudge(states, jax.random.key(k), 3) if k % 4 == 2 else None
        reference = {"reference": actors[0], "reference_seeds": (500, 501)} if k % 4 >= 2 else {}
        found.append(
            Candidate(
                Individual(actor, memory if k % 2 else None),
                seeds=(100 * k, 100 * k + 1),
                noise=noise if k % 4 == 1 else None,
                lesson=lesson,
                number=k,
                **reference,
            )
        )
    return found


def leaves(tree):
    return [np.asarray(leaf) for leaf in jax.tree.leaves(tree)]


def same(a, b):
    """Whether two outcomes are the same to the last bit."""
    assert a.candidate is b.candidate
    assert (a.returns, a.reference_returns, a.reference_frames) == (b.returns, b.reference_returns, b.reference_frames)
    assert a.individual.memory is b.individual.memory
    for x, y in zip(
        leaves((a.individual.actor, a.transitions)), leaves((b.individual.actor, b.transitions)), strict=True
    ):
        assert x.dtype == y.dtype
        assert np.array_equal(x, y)
    return True


def until(condition, seconds=30.0):
    late = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < late, "it did not happen"
        time.sleep(0.02)


@pytest.fixture(scope="module")
def cluster():
    """One cluster for all, as RayWorkers start it. A worker takes seconds to start: most tests share them."""
    start(ray, 6)
    yield
    ray.shutdown()


@pytest.fixture(scope="module")
def three(cluster, tmp_path_factory):
    workers = RayWorkers(make(Troubled, tmp_path_factory.mktemp("marks")), 3)
    yield workers
    workers.close()


@pytest.fixture(scope="module")
def one(cluster):
    workers = RayWorkers(REACH, 1)
    yield workers
    workers.close()


def test_outcomes_equal_those_of_local_workers_bit_for_bit(three, memory):
    candidates = everyone(memory=memory(32, 20, sizes=(1, 1)))
    here = genepool.LocalWorkers(REACH).map(candidates)
    assert all(same(a, b) for a, b in zip(three.map(candidates), here, strict=True))


def test_one_worker_brings_the_same_as_three(one, three):
    candidates = everyone(12)  # three at a time, or one after the other
    assert all(same(a, b) for a, b in zip(one.map(candidates), three.map(candidates), strict=True))


def trained(algorithm, workers, generations):
    state, key = algorithm.init(jax.random.key(0)), jax.random.key(1)
    for g in range(generations):
        state, _ = synchronous(algorithm, workers, jax.random.fold_in(key, g), state, Clock())
    return state


def equal(a, b):
    return all(np.array_equal(x, y, equal_nan=True) for x, y in zip(leaves(a), leaves(b), strict=True))


TINY = {"population": 6, "memory": 100, "hidden": (8, 8), "replay": 10_000, "updates_per_frame": 0.05}


def test_synchronous_pderl_is_the_same_run_bit_for_bit(three):
    algorithm = replace(genepool.pderl(Reach, **TINY), task=REACH)
    assert equal(trained(algorithm, three, 2), trained(algorithm, genepool.LocalWorkers(REACH), 2))


def test_parallel_cem_rl_equals_cem_rl_bit_for_bit_whatever_the_number_of_workers(one, three):
    learner = genepool.TD3(batch_size=16, critic_hidden=(8, 8))
    algorithm = genepool.cem_rl(Reach, learner=learner, hidden=(8, 8), warmup=150, replay=2_000)
    algorithm = replace(algorithm, task=REACH)
    here = trained(algorithm, genepool.LocalWorkers(REACH), 3)
    assert int(here.counts[0]) - 1 == 10  # lessons were taken in two of the three generations
    assert equal(trained(algorithm, three, 3), here)
    assert equal(trained(algorithm, one, 3), here)


def test_esac_on_a_cluster_is_esac_bit_for_bit(three):
    learner = genepool.SAC(batch_size=8, critic_hidden=(8, 8), warmup=8, random_frames=0)
    options = {"hidden": (8, 8), "pairs": 6, "injected": 1, "sac_episodes": 1, "gradient_interval": 2, "replay": 2_000}
    algorithm = replace(genepool.esac(Reach, learner=learner, final_chance=1.0, **options), task=REACH)
    here = trained(algorithm, genepool.LocalWorkers(REACH), 3)
    assert int(here.phases) == 1
    assert equal(trained(algorithm, three, 3), here)


def test_gpo_on_a_cluster_is_gpo_bit_for_bit_through_a_crossover(three):
    crossover = genepool.StateSpace(iterations=2, selector_epochs=2, expert_frames=30, student_frames=20, dagger=2)
    mutation = genepool.PPO(epochs=2, critic=Critic(minibatches=1))
    small = {"population": 3, "iterations": 2, "rounds": 2, "batch": 60, "hidden": (8,), "max_steps": 20}
    algorithm = genepool.gpo(Reach, mutation=mutation, crossover=crossover, **small)
    algorithm = replace(algorithm, task=replace(REACH, max_steps=20))
    here = trained(algorithm, genepool.LocalWorkers(REACH), 3)
    assert int(here.learner.bred) == 1
    assert equal(trained(algorithm, three, 3), here)


def test_a_member_of_an_evolution_strategy_costs_a_seed_and_a_reference():
    store, like = Store(), Actor(jax.random.key(0), 17, 6, (512, 512), False, "relu")
    sender, part = wire.Sender(store.put, store.get), genepool.WinnersES(winners=0.0, injected=0, crossover=None)
    members, _ = part.ask(part.init(jax.random.key(0), trees.flat(like)), 100, jax.tree.map(np.asarray, like), None)
    messages = [sender.pack(member)[0] for member in members]
    assert max(map(len, messages)) < 20_000  # biases and the last layer, which are too small to be shared
    assert store.bytes < 1_200_000  # the mother's weights, once


def test_the_second_outcome_of_a_candidate_is_ignored(three):
    candidate = everyone(1)[0]
    three.submit(candidate)
    (errand,) = [hand.errand for hand in three._hands if hand.errand]
    again = three._hands[2]
    late = again.player.play.remote([(call.message, call.references) for call in errand.calls])
    three._send(again, errand.calls, late, three._played)  # as after a deadline
    assert three.next(wait=True).candidate is candidate
    until(lambda: three.idle == 3 and all(hand.errand is None for hand in three._hands))
    assert three.next(wait=True) is None
    assert three.busy == 0


def test_an_environments_error_arrives_once_and_in_the_same_line(three):
    candidates = [replace(candidate, seeds=(BREAKS - 2 + k,)) for k, candidate in enumerate(everyone(4))]
    with pytest.raises(UserError) as here:
        genepool.LocalWorkers(three.task).map(candidates[2:3])
    with pytest.raises(UserError) as there:
        three.map(candidates)
    assert str(there.value) == str(here.value)
    assert "raised RuntimeError in the episode with seed 7, step 1: the joint broke" in str(there.value)
    assert three.map(candidates[:1])[0].candidate is candidates[0]  # the others go on
    assert three.busy == 0


def test_waiting_costs_no_processor_time(three):
    three.submit(replace(everyone(1)[0], seeds=(DOZES,)))
    begun, spent = time.monotonic(), time.process_time()
    assert three.next(wait=False) is None
    assert isinstance(three.next(wait=True), Outcome)
    spent, waited = time.process_time() - spent, time.monotonic() - begun
    assert waited > 1.9
    assert spent < 0.1 * waited


def test_learning_goes_on_behind_from_a_copy_and_its_error_arrives(three):
    state = {"replay": jnp.zeros(3), "count": np.int64(2)}

    def learn(key, state):
        time.sleep(0.3)
        return {"replay": state["replay"] + 1, "count": state["count"] + 1}

    three.study(learn, jax.random.key(0), state, 1)
    assert three.studying
    jax.jit(lambda x: x + 5, donate_argnums=0)(state["replay"])  # as tell does
    assert three.next(wait=False) is None
    learnt = three.next(wait=True)
    assert isinstance(learnt, Learnt)
    assert learnt.state["replay"].tolist() == [1.0, 1.0, 1.0]
    assert learnt.state["count"] == 3
    assert not three.studying

    three.study(learn, jax.random.key(0), state | {"replay": jnp.zeros(3)}, 1)
    three.submit(everyone(1)[0])
    until(lambda: three.idle == 3 and len(three._done) == 2)
    done = [(three.studying, three.next(wait=True)) for _ in range(2)]
    assert [studying for studying, each in done if isinstance(each, Learnt)] == [True]  # until it is handed out
    assert not three.studying

    def fail(key, state):
        raise FloatingPointError("diverged")

    three.study(fail, jax.random.key(0), {}, 1)
    with pytest.raises(FloatingPointError, match="diverged"):
        three.next(wait=True)
    assert not three.studying


def test_the_asynchronous_schedule_tells_every_candidate_once(three):
    algorithm = genepool.erl(Reach, learner=genepool.DDPG(warmup=20), **TINY)
    algorithm, key = replace(algorithm, task=REACH, evolver=SteadyState(6)), jax.random.key(0)
    state, told, clock = algorithm.init(key), [], Clock()
    for g in range(3):
        frames = 0 if g == 2 else 10**9  # the last time, only what is out still comes in
        state, outcomes = asynchronous(algorithm, three, jax.random.fold_in(key, g), state, clock, frames)
        told += [outcome.candidate.number for outcome in outcomes]
    assert three.busy == 0
    asked = [int(event.split()[1]) for event in clock.events if event.startswith("ask")]
    assert sorted(told) == sorted(asked) == list(range(len(asked)))
    assert len(told) >= 2 * algorithm.generation
    assert "learnt" in clock.events
    while three.studying:
        three.next(wait=True)


def test_of_many_a_worker_is_handed_several_and_if_it_is_killed_each_of_them_is_issued_again_alone(three, monkeypatch):
    candidates, folder, sent, send = everyone(24), three.task.make.args[0], [], three._send
    here = genepool.LocalWorkers(REACH).map(candidates)
    (folder / "100").touch()
    stalled = folder / "100.stalled"

    def kill():
        until(stalled.exists)
        os.kill(int(stalled.read_text()), signal.SIGKILL)
        stalled.unlink()

    def noted(hand, calls, *rest):
        sent.append([call.candidate.number for call in calls])
        send(hand, calls, *rest)

    monkeypatch.setattr(three, "_send", noted)
    killer = threading.Thread(target=kill)
    killer.start()
    outcomes = three.map(candidates)
    killer.join()
    assert all(same(a, b) for a, b in zip(outcomes, here, strict=True))
    plays = [numbers for numbers in sent if numbers]  # the rest is greetings
    assert sorted(plays) == sorted([[k, k + 1] for k in range(0, 24, 2)] + [[0], [1]])
    assert three.busy == 0
    until(lambda: three.idle == 3)


@pytest.mark.parametrize("blow", [signal.SIGKILL, None])
def test_a_worker_that_is_killed_or_hangs_loses_no_candidate_and_doubles_none(three, blow, monkeypatch):
    candidates, folder = everyone(6), three.task.make.args[0]
    here = genepool.LocalWorkers(REACH).map(candidates)
    (folder / "100").touch()
    monkeypatch.setattr(three, "deadline", None if blow else 8.0)
    for candidate in candidates:
        three.submit(candidate)
    stalled = folder / "100.stalled"
    until(stalled.exists)
    process = int(stalled.read_text())
    stalled.unlink()
    if blow:
        os.kill(process, blow)
    outcomes = [three.next(wait=True) for _ in candidates]
    assert three.busy == 0
    assert three.next(wait=True) is None
    outcomes.sort(key=lambda outcome: outcome.candidate.number)
    assert all(same(a, b) for a, b in zip(outcomes, here, strict=True))
    until(lambda: three.idle == 3)  # and it comes back


def test_a_candidate_that_takes_every_worker_with_it_is_refused_in_one_line(three, monkeypatch, capfd):
    monkeypatch.setattr("genepool.workers.ray.LOSSES", 2)
    candidate = replace(everyone(1)[0], seeds=(DIES,), number=41)
    with pytest.raises(UserError, match="candidate 41 was lost with its worker, 2 times in a row") as caught:
        three.map([candidate])
    assert "\n" not in str(caught.value)
    assert capfd.readouterr() == ("", "")  # Ray says nothing of its own


def test_a_killed_driver_goes_on_and_asks_again_for_whom_it_had_out(tmp_path, cluster):
    folder, script = tmp_path / "run", Path(__file__).with_name("killed_run.py")
    command = [sys.executable, script, folder, "saving", "aes_rl", "ray:2"]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    assert answer.returncode == -signal.SIGKILL, answer.stderr
    before = len(numbers(folder))
    assert before  # a checkpoint was written, while others were out
    assert genepool.resume(folder).champion
    assert len(numbers(folder)) > before
    assert sorted(numbers(folder)) == list(range(len(numbers(folder))))  # nobody is lost, nobody counts twice


def numbers(folder):
    """The candidates that were told, by number, in all records."""
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    return [candidate["number"] for line in lines for candidate in json.loads(line)["candidates"]]


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


class Study(eqx.Module):
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
        lesson = Study(critics, ring, jax.random.PRNGKey(k))
        candidate = Candidate(Individual(actors[k], np.zeros(10**6)), (k,), noise, lesson, mean, (k,), number=k)
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
    print(f"message {message} bytes, {count} references {size} bytes")


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


def test_ray_listens_on_this_machine_alone_and_asks_for_a_token(cluster):
    from ray._private.authentication.authentication_utils import is_token_auth_enabled

    assert is_token_auth_enabled()
    own = {fd_inode for pid in processes() for fd_inode in sockets(pid)}
    listening = [
        row.split() for kind in ("tcp", "tcp6") for row in Path(f"/proc/net/{kind}").read_text().splitlines()[1:]
    ]
    addresses = {row[1].split(":")[0] for row in listening if row[3] == "0A" and row[9] in own}
    assert addresses <= {"0100007F", "0000000000000000FFFF00000100007F"}  # 127.0.0.1 and the same in IPv6's notation
    assert addresses


def processes():
    """This process and all that descend from it."""
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
    found = {os.getpid()}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return found


def sockets(pid):
    """Inodes of a process's sockets."""
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        try:
            target = os.readlink(descriptor)
        except OSError:
            continue
        if target.startswith("socket:["):
            yield target[8:-1]


def test_without_ray_one_line_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UserError, match=r"^Ray is not installed: pip install 'genepool\[cluster\]'$"):
        RayWorkers(REACH, 1)


def test_a_node_may_leave_and_another_join_in_the_middle(tmp_path, cluster, capfd):
    from ray.cluster_utils import Cluster

    ray.shutdown()
    task, candidates = make(Troubled, tmp_path), everyone(6)
    here = genepool.LocalWorkers(task).map(candidates)
    (tmp_path / "0").touch()
    alert = {"health_check_initial_delay_ms": 0, "health_check_period_ms": 300, "health_check_failure_threshold": 3}
    head = {"num_cpus": 0, "include_dashboard": False, "_system_config": alert}
    nodes = Cluster(initialize_head=True, head_node_args=head)
    away = nodes.add_node(num_cpus=1)
    workers = None
    try:
        nodes.wait_for_nodes()
        workers = RayWorkers(task, 2, address=nodes.address)  # one more than fit
        assert workers.idle == 1
        for candidate in candidates:
            workers.submit(candidate)
        until((tmp_path / "0.stalled").exists)
        nodes.remove_node(away, allow_graceful=False)
        nodes.add_node(num_cpus=2)
        outcomes = [workers.next(wait=True) for _ in candidates]
        until(lambda: workers.idle == 2)
        assert workers.next(wait=True) is None
        outcomes.sort(key=lambda outcome: outcome.candidate.number)
        assert all(same(a, b) for a, b in zip(outcomes, here, strict=True))
        assert "(raylet)" not in "".join(capfd.readouterr())
    finally:
        if workers:
            workers.close()
        ray.shutdown()
        nodes.shutdown()
