"""The rules: values and functions. Nothing here reads a clock, logs, waits or touches a network."""
