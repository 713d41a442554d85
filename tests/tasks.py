"""Small tasks with known answers, solved in seconds."""

from typing import ClassVar

import gymnasium
import numpy as np


class Reach(gymnasium.Env):
    """Move a point on a line to zero: x <- x + 0.3 a, reward -|x|. The best return is about -1.5 from x = 1."""

    observation_space = gymnasium.spaces.Box(-10.0, 10.0, (1,))
    action_space = gymnasium.spaces.Box(-2.0, 2.0, (1,))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.x = float(self.np_random.uniform(0.9, 1.1) * self.np_random.choice([-1, 1]))
        self.t = 0
        return np.array([self.x], np.float32), {}

    def step(self, action):
        self.x = self.x + 0.15 * float(action[0])
        self.t = self.t + 1
        return np.array([self.x], np.float32), -abs(self.x), False, self.t >= 20, {}


class Plane(gymnasium.Env):
    """The same in two dimensions, with a third number to see that tells nothing."""

    observation_space = gymnasium.spaces.Box(-10.0, 10.0, (3,))
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (2,))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.x = self.np_random.uniform(-1.0, 1.0, 2)
        self.t = 0
        return self._seen(), {}

    def _seen(self):
        return np.array([*self.x, 1.0], np.float32)

    def step(self, action):
        self.x = self.x + 0.3 * action
        self.t = self.t + 1
        return self._seen(), -float(np.abs(self.x).sum()), False, self.t >= 20, {}


class Sick(Reach):
    """Goes wrong after some episodes, counted over all its instances."""

    episodes = 0
    healthy = 30
    symptom = "raise"

    def reset(self, *, seed=None, options=None):
        Sick.episodes += 1
        return super().reset(seed=seed)

    def step(self, action):
        observation, reward, *rest = super().step(action)
        if Sick.episodes > Sick.healthy and self.t == 7:
            if Sick.symptom == "raise":
                raise RuntimeError("the joint broke")
            observation = observation * np.nan
        return observation, reward, *rest


class Switch(gymnasium.Env):
    """Three positions, 7 to 9; it shows the one that it was last put in, for ten steps."""

    observation_space = gymnasium.spaces.Box(0.0, 9.0, (1,))
    action_space = gymnasium.spaces.Discrete(3, start=7)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        assert self.action_space.contains(action)
        self.t += 1
        return np.array([action], np.float32), 0.0, False, self.t >= 10, {}


class Drawn(Reach):
    """A point on a line that is drawn, 50 steps a second: a dark stripe on a white picture of 60 x 80 pixels."""

    metadata: ClassVar = {"render_modes": ["rgb_array", "human"], "render_fps": 50}

    def __init__(self, render_mode=None):
        self.render_mode = render_mode

    def render(self):
        picture = np.full((60, 80, 3), 255, np.uint8)
        picture[:, int(np.clip(40 + 20 * self.x, 0, 79))] = 40
        return picture
