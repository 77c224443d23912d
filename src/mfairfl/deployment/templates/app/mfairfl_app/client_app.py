"""The installed client app."""

from mfairfl.deployment import silo_app

app = silo_app.app  # Flower looks for an assignment before it accepts an app
