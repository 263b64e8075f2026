"""Control-flow graphs with guards, facts about guards, and a path-sensitive solver. Knows nothing about gradients."""
