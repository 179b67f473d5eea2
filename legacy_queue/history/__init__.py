"""What happened to a task, in words and as a picture, made from the answer of inspectTask.

The pages, the commands, and the reports of the test kit and of conform show it. Only the pages run in the
server, so nothing here imports it.
"""
