"""Ray workers that are lost, hang or leave: no candidate is lost and none counts twice. Who may reach the cluster."""

import json
import os
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest
import ray
from tiny_ray import DIES, REACH, Troubled, make, of_every_kind, own_cluster, same, shared_workers, until

import genepool
from genepool.errors import UserError
from genepool.workers.ray.driver import RayWorkers


@pytest.fixture(scope="module")
def cluster():
    yield from own_cluster()


@pytest.fixture(scope="module")
def three(cluster, tmp_path_factory):
    yield from shared_workers(make(Troubled, tmp_path_factory.mktemp("marks")), 3)


def test_the_second_outcome_of_a_candidate_is_ignored(three):
    candidate = of_every_kind(1)[0]
    three.submit(candidate)
    (request,) = [handle.request for handle in three._handles if handle.request]
    again = three._handles[2]
    late = again.actor.play.remote([(job.message, job.references) for job in request.jobs])
    three._send(again, request.jobs, late, three._on_replies)  # as after a deadline
    assert three.next(wait=True).candidate is candidate
    until(lambda: three.idle == 3 and all(handle.request is None for handle in three._handles))
    assert three.next(wait=True) is None
    assert three.busy == 0


def test_of_many_candidates_a_worker_gets_several_and_if_it_is_killed_each_is_issued_again_alone(three, monkeypatch):
    candidates = of_every_kind(24)
    folder = three.task.make.args[0]
    sent = []
    send = three._send
    here = genepool.LocalWorkers(REACH).map(candidates)
    (folder / "100").touch()
    stalled = folder / "100.stalled"

    def kill():
        until(stalled.exists)
        os.kill(int(stalled.read_text()), signal.SIGKILL)
        stalled.unlink()

    def noted(handle, jobs, *rest):
        sent.append([job.candidate.number for job in jobs])
        send(handle, jobs, *rest)

    monkeypatch.setattr(three, "_send", noted)
    killer = threading.Thread(target=kill)
    killer.start()
    outcomes = three.map(candidates)
    killer.join()
    assert all(same(a, b) for a, b in zip(outcomes, here, strict=True))
    plays = [numbers for numbers in sent if numbers]  # the others are greetings
    assert sorted(plays) == sorted([[k, k + 1] for k in range(0, 24, 2)] + [[0], [1]])
    assert three.busy == 0
    until(lambda: three.idle == 3)


@pytest.mark.parametrize("kill", [signal.SIGKILL, None])
def test_a_worker_that_is_killed_or_hangs_loses_no_candidate_and_doubles_none(three, kill, monkeypatch):
    candidates = of_every_kind(6)
    folder = three.task.make.args[0]
    here = genepool.LocalWorkers(REACH).map(candidates)
    (folder / "100").touch()
    monkeypatch.setattr(three, "deadline", None if kill else 8.0)
    for candidate in candidates:
        three.submit(candidate)
    stalled = folder / "100.stalled"
    until(stalled.exists)
    process = int(stalled.read_text())
    stalled.unlink()
    if kill:
        os.kill(process, kill)
    outcomes = [three.next(wait=True) for _ in candidates]
    assert three.busy == 0
    assert three.next(wait=True) is None
    outcomes.sort(key=lambda outcome: outcome.candidate.number)
    assert all(same(a, b) for a, b in zip(outcomes, here, strict=True))
    until(lambda: three.idle == 3)  # and it comes back


def test_a_candidate_that_takes_every_worker_with_it_is_refused_in_one_line(three, monkeypatch, capfd):
    monkeypatch.setattr("genepool.workers.ray.driver.LOSSES", 2)
    candidate = replace(of_every_kind(1)[0], seeds=(DIES,), number=41)
    with pytest.raises(UserError, match="candidate 41 was lost with its worker, 2 times in a row") as caught:
        three.map([candidate])
    assert "\n" not in str(caught.value)
    assert capfd.readouterr() == ("", "")  # Ray says nothing of its own


def test_a_killed_driver_goes_on_and_issues_again_the_candidates_that_were_out(tmp_path, cluster):
    folder = tmp_path / "run"
    script = Path(__file__).parents[1] / "killed_run.py"
    command = [sys.executable, script, folder, "saving", "aes_rl", "ray:2"]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    assert answer.returncode == -signal.SIGKILL, answer.stderr
    before = len(numbers(folder))
    assert before  # a checkpoint was written, while others were out
    assert genepool.resume(folder).champion
    assert len(numbers(folder)) > before
    assert sorted(numbers(folder)) == list(range(len(numbers(folder))))  # none is lost, none counts twice


def numbers(folder):
    """The candidates that were told, by number, in all records."""
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    return [candidate["number"] for line in lines for candidate in json.loads(line)["candidates"]]


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
    task = make(Troubled, tmp_path)
    candidates = of_every_kind(6)
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
