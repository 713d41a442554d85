"""Tasks and the engines that run them. Only this package imports gymnasium, mujoco and envpool, when first needed."""
