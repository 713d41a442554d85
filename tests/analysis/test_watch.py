"""Films of champions: the number and size of their pictures, and one clear line if there is nothing to see."""

import json

import av
import gymnasium
import numpy as np
import pytest
from PIL import Image
from tasks import Drawn, Reach

from genepool import cli, pderl
from genepool.analysis.film.camera import drawing_environment
from genepool.environments.lookup import find
from genepool.runs.training import start

pytestmark = pytest.mark.filterwarnings("ignore:the run .* was never iterated over")  # that it never trains is meant

PENDULUM = "InvertedPendulum-v5"
SIZE = (480, 400)  # of a picture of 60 x 80 pixels, and its words


def champion(folder, task, **options):
    """A run folder with a champion that never trained."""
    run = start(pderl(task, hidden=(8, 8), memory=10, replay=1_000, **options), 100, seed=2, run=folder)
    run.workers.close()
    run.policy().save(run.folder.champion_file)
    return folder


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return champion(tmp_path_factory.mktemp("runs") / "drawn", Drawn)


def watch(capsys, *words):
    """The exit code and what was printed."""
    code = cli.main(["watch", *map(str, words)])
    printed = capsys.readouterr()
    return code, printed.out, printed.err


def film(path):
    with Image.open(path) as picture:
        return picture.n_frames, picture.size


def test_a_film_has_25_pictures_a_second_in_real_time(run, capsys):
    code, out, _ = watch(capsys, run, "--task", "tasks:Drawn")
    assert code == 0
    assert "champion.gif: 11 pictures" in out  # steps 0, 2, ... 20 of 50 a second
    assert film(run / "champion.gif") == (11, SIZE)


def test_the_return_is_that_of_the_same_episode_evaluated(run, capsys, tmp_path):
    cli.main(["evaluate", str(run), "--episodes", "1", "--seed", "4", "--task", "tasks:Drawn"])
    evaluated = capsys.readouterr().out.split("return ")[1].split(",")[0]
    for seconds in (0.2, 15):  # however much of it is filmed
        words = ("--seed", 4, "--seconds", seconds, "--task", "tasks:Drawn", "--out", tmp_path / "film.gif")
        assert f"return {evaluated} in 20 steps" in watch(capsys, run, *words)[1]
        assert film(tmp_path / "film.gif")[0] == (5 if seconds < 1 else 11)


def test_champions_stand_side_by_side_and_an_episode_that_is_over_waits(run, capsys, tmp_path):
    short = champion(tmp_path / "short", Drawn, max_steps=8)
    words = ("--episodes", 2, "--task", "tasks:Drawn", "--out", tmp_path / "two.mp4")
    code, out, _ = watch(capsys, run, short, *words)
    assert code == 0
    assert "two.mp4: 22 pictures" in out
    with av.open(str(tmp_path / "two.mp4")) as written:
        stream = written.streams.video[0]
        assert (stream.width, stream.height, stream.average_rate) == (2 * SIZE[0], SIZE[1], 25)
        pictures = [frame.to_ndarray(format="gray") for frame in written.decode(stream)]
    assert len(pictures) == 22
    left, right = (
        abs(pictures[10][:, half].astype(int) - pictures[6][:, half]).max() for half in (slice(480), slice(480, 960))
    )
    assert left > 100 > 30 > right


def test_a_task_of_mujocos_is_drawn_without_a_screen(capsys, tmp_path, monkeypatch):
    monkeypatch.delenv("DISPLAY", raising=False)
    run = champion(tmp_path / "run", PENDULUM, engine="gymnasium")
    code, out, err = watch(capsys, run, "--seconds", 0.2)
    assert (code, err) == (0, "playing pderl, InvertedPendulum-v5, 0 frames, seed 2\n")
    count, size = film(run / "champion.gif")
    assert size == (360, 400)
    assert 3 <= count <= 5  # it falls within a fifth of a second, or not
    assert f"{count} pictures" in out
    with Image.open(run / "champion.gif") as picture:
        assert len(picture.convert("RGB").getcolors(10**6)) > 20


def test_the_camera_goes_with_the_robot(monkeypatch):
    monkeypatch.setenv("MUJOCO_GL", "egl")
    environment = drawing_environment(find("HalfCheetah-v5", "gymnasium"), "rgb_array")
    environment.reset(seed=0)
    environment.render()
    robot = environment.unwrapped
    robot.set_state(robot.init_qpos + 20.0 * np.eye(robot.model.nq)[0], robot.init_qvel)
    red, green, blue = np.moveaxis(environment.render().astype(int), 2, 0)
    environment.close()
    assert np.sum((red > green + 30) & (green > blue + 20)) > 1_000  # of its skin


def test_a_window_is_large_and_its_camera_goes_with_the_robot_too():
    environment = drawing_environment(find("HalfCheetah-v5", "gymnasium"), "human")  # it opens when it is first drawn
    robot = environment.unwrapped
    renderer = robot.mujoco_renderer
    fixed = 2  # MuJoCo's number for a camera of the model
    environment.close()
    assert renderer.default_cam_config == {"type": fixed, "fixedcamid": robot.model.camera("track").id}
    assert (renderer.width, renderer.height) == (1280, 800)


def test_a_champion_of_another_engine_is_played_in_gymnasium_and_that_is_said(capsys, tmp_path):
    run = champion(tmp_path / "run", PENDULUM, engine="gymnasium")
    config = json.loads((run / "config.json").read_text())
    config |= {"engine": "envpool", "versions": config["versions"] | {"envpool": "9.9"}}
    config["algorithm"]["task"]["engine"] = "envpool"
    (run / "config.json").write_text(json.dumps(config))
    out = watch(capsys, run, "--seconds", 0.04)[1]
    assert f"played with gymnasium {gymnasium.__version__}" in out
    assert "trained with envpool 9.9, whose physics differ" in out
    config["algorithm"]["task"]["id"] = "CheetahRun-v1"
    (run / "config.json").write_text(json.dumps(config))
    code, _, err = watch(capsys, run)
    assert (code, err.count("\n")) == (2, 1)
    assert "CheetahRun-v1 cannot be watched" in err


def test_a_window_is_opened_only_where_there_is_a_screen(run, capsys, monkeypatch):
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    code, _, err = watch(capsys, run, "--live", "--task", "tasks:Drawn")
    assert (code, err.count("\n")) == (2, 1)
    assert "no screen" in err
    monkeypatch.setenv("DISPLAY", ":0")
    before = (run / "champion.gif").stat().st_mtime_ns
    code, out, _ = watch(capsys, run, "--live", "--task", "tasks:Drawn")
    assert code == 0
    assert "in 20 steps" in out
    assert (run / "champion.gif").stat().st_mtime_ns == before


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("", "watch what?"),
        ("nowhere", "no run folder nowhere"),
        ("untrained --task tasks:Drawn", "no champion yet"),
        ("drawn --out film.avi --task tasks:Drawn", ".gif or an .mp4"),
        ("drawn --out no/film.gif --task tasks:Drawn", "no folder no"),
        ("drawn --seconds 0 --task tasks:Drawn", "more than 0 seconds"),
        ("drawn --seed -1 --task tasks:Drawn", "0 or more"),
        ("drawn --task tasks:Reach", "draws nothing"),
    ],
)
def test_what_cannot_be_watched_is_said_in_one_line(words, said, run, capsys, monkeypatch):
    monkeypatch.chdir(run.parent)
    if words.startswith("untrained"):
        start(pderl(Reach), 100, run="untrained").workers.close()
    code, _, err = watch(capsys, *words.split())
    assert code == 2
    assert said in err.splitlines()[-1]
    assert all(line.startswith(("genepool:", "playing")) for line in err.splitlines())
