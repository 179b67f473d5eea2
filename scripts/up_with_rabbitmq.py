"""`legacy-queue up` with a RabbitMQ of its own, which publishes the events; run by scripts/up --rabbitmq."""

import os
import sys
from pathlib import Path

import click

sys.path.insert(0, str(Path(__file__).parents[1]))

from legacy_queue.cli.up import up
from legacy_queue.config.given import PREFIX, Given
from legacy_queue.server.signals import interrupt_on_signal
from tests.rabbitmq import RabbitMQ, RabbitMQUnavailable

_ROOT = Path(__file__).parents[1]


def main(words: list[str]) -> None:
    """Start the broker, then the queue; the broker ends with this process, however that ends."""
    try:
        context = up.make_context("scripts/up", [*words])
        is_demo = context.params["demo"]
        settings = context.ensure_object(Given).settings()
        if settings.amqp_url:
            raise click.ClickException(
                "--rabbitmq starts a broker, and amqp-url names another: give one of them"
            )
        interrupt_on_signal()
        folder = settings.data_dir / "demo" if is_demo else settings.data_dir
        with RabbitMQ(folder / "rabbitmq", _ROOT / ".rabbitmq") as broker:
            click.echo(f"RabbitMQ publishes the events on {broker.url} (topic exchanges).\n")
            os.environ[f"{PREFIX}AMQP_URL"] = broker.url  # a command line is read by everybody
            sys.argv[0] = str(Path(sys.executable).parent / "legacy-queue")  # named in what up says to try
            up.main(words, "scripts/up")
    except RabbitMQUnavailable as unavailable:
        raise SystemExit(f"Error: {unavailable}") from None
    except KeyboardInterrupt:
        raise SystemExit(0) from None
    except click.exceptions.Exit as end:  # after --help
        raise SystemExit(end.exit_code) from None
    except click.ClickException as error:
        error.show()
        raise SystemExit(error.exit_code) from None


if __name__ == "__main__":
    main([word for word in sys.argv[1:] if word != "--rabbitmq"])
