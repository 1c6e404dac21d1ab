"""MCP, both ways: skills are offered as MCP tools, and skills call the tools of MCP servers.

The official `mcp` package is an extra and slow to import. Only the modules that need it import it,
and they are imported when somebody asks for MCP (see `extra.py`).
"""
