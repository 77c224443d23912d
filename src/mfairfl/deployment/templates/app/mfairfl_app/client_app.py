"""The installed client app."""

from mfairfl.deployment import client_app

app = client_app.app  # Flower looks for an assignment before it accepts an app
