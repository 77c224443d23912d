"""The installed server app."""

from mfairfl.deployment import coordinator_app

app = coordinator_app.app  # Flower looks for an assignment before it accepts an app
