"""Dragoman beside other A2A servers: the same agent, the same load, one core each.

`python -m bench` installs the peers, runs every scenario on every server in turn, several times
over, and writes medians, ratios and the goals they meet to `bench/results/`.
"""
