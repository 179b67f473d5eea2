from legacy_queue.domain.topics import TopicIndex


def matches(pattern: str, routing_key: str) -> bool:
    """Whether a topic exchange would route the key to a queue bound by the pattern."""
    index: TopicIndex[str] = TopicIndex()
    index.add(pattern, pattern)
    return bool(index.matching([routing_key]))
