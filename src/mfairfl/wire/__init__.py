"""Messages between a coordinator and its silos: packed once, read without trust."""
