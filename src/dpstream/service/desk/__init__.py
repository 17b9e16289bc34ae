"""The desk of the service: roles, the decisions' log, the queue, the board, and the worker."""

from __future__ import annotations

from dpstream.service.desk.desk import KINDS, Desk
from dpstream.service.desk.facts import Card, Decision, Held, Person, Price, Task
from dpstream.service.desk.roles import MAY, ROLES, NotAllowedError
from dpstream.service.desk.settings import Proxy, Settings, StreamSettings
