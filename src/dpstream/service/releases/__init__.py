"""The consumers' feed: published releases over HTTP. It knows folders of releases, and nothing of a state."""

from dpstream.service.releases.app import make_app
from dpstream.service.releases.places import ReleaseFolder, find_places
from dpstream.service.releases.serving import listen, serve, server_of
