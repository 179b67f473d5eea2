"""The life of a task for people, in words and as a picture, made from what the queue answers.

The pages show it, and so do the reports of the test kit and of conform, which import nothing of the server.
"""
