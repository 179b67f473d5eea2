"""legacy-queue ca: the local certificate authority, and how clients trust it."""

from datetime import UTC, datetime

import click

from legacy_queue.cli.options import SettingsCommand, pass_given
from legacy_queue.config import GivenSettings
from legacy_queue.private_folder import make_private
from legacy_queue.server.logs import log_to_standard_error
from legacy_queue.server.tls import local_authority


@click.command(cls=SettingsCommand, uses=("data_dir", "tls_name"))
@pass_given
def ca(given: GivenSettings) -> None:
    """Print where the certificate of the local authority is, and how clients can trust it.

    `serve --tls auto` uses this authority if it has the same --data-dir. If there is none yet, this command
    makes one, for the names in --tls-name.
    """
    given.set("tls", "auto")
    settings = given.settings()
    log_to_standard_error(settings.log_format, settings.log_level)
    authority = local_authority(settings)
    try:
        make_private(settings.data_dir)
        authority.ensure(datetime.now(UTC))
    except ValueError as error:
        raise click.ClickException(str(error)) from None
    certificate = authority.certificate
    bundle = authority.bundle
    click.echo(f"""\
{certificate}

It can sign only for the names of this server. Each client needs a copy. A client that uses the bundle still
trusts all other authorities. One that uses only the certificate trusts no other, except Node, which adds it.

Node          export NODE_EXTRA_CA_CERTS={certificate}
Python        export REQUESTS_CA_BUNDLE={bundle}
              (requests and programs that use it: the taskcluster client, pip)
              export SSL_CERT_FILE={bundle}
              (urllib, aiohttp and others that use Python's own TLS)
Go            export SSL_CERT_FILE={bundle}
              (on Linux, if built with Go 1.8 or newer; older programs use Debian's trust store)
curl          curl --cacert {certificate} ...
Debian        cp {certificate} /usr/local/share/ca-certificates/legacy-queue.crt && update-ca-certificates
              (as root; for Go, curl, and Python's own TLS; not for Node, nor for requests)""")
