"""Tasks and the engines that run them. The only importers of gymnasium, mujoco and envpool, each when first needed."""
