"""Stewards' pages: rendered on the server, with the desk behind them; no request reaches a state.

They work without JavaScript, and load nothing from elsewhere.
"""

from dpstream.service.pages.serving import create_app, serve
