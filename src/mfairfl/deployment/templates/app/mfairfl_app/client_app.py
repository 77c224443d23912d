"""The installed client app."""

from mfairfl.flower import app as client_app

app = client_app.app  # Flower looks for an assignment before it accepts an app
