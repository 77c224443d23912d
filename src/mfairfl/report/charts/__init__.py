"""Charts as inline SVG: small, without scripts, legible in greyscale and on a phone.

Every chart is drawn 340 units wide with text of 12 units, so that it fills a phone's width at
about one pixel a unit. Meaning never rests on colour alone: markers, dashes and labels repeat it.
"""
