from hypothesis import settings

# A slow machine is no failure: nothing here is a timed assertion.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")
