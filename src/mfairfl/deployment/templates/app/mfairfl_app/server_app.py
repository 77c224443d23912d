"""The installed server app."""

from mfairfl.deployment import server_app

app = server_app.app  # Flower looks for an assignment before it accepts an app
