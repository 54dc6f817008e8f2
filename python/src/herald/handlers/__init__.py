"""Handlers that a2a-server finds by itself: each module in this directory with a TaskHandler.

Handlers know the package as `a2a.server.tasks.handlers`.
"""
