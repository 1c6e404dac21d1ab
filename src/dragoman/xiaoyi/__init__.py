"""The XiaoYi link: agents that dial in, and an agent that dials out."""
