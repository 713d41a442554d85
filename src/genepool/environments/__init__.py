"""Tasks and the engines that run them. The only importers of gymnasium and envpool, each when first needed."""
