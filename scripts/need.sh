# SPDX-License-Identifier: Apache-2.0
# Sourced: need PACKAGE... installs those Debian or Ubuntu packages that are missing, and says so.

# Whether what a package brings is there, however it came.
has_package() {
    case $1 in
    ninja-build) command -v ninja ;;
    libjansson-dev) pkg-config --exists jansson ;;
    libcmocka-dev) pkg-config --exists cmocka ;;
    gcc | g++ | meson | pkg-config | python3 | cmake | clang) command -v "$1" ;;
    *) dpkg-query --show --showformat='${Status}' "$1" 2>&1 | grep -q '^install ok installed' ;;
    esac >/dev/null 2>&1
}

as_root() {
    if [ "$(id -u)" -eq 0 ]; then
        "$@"
    else
        sudo "$@"
    fi
}

need() {
    local package missing=()

    for package; do
        has_package "$package" || missing+=("$package")
    done
    if [ ${#missing[@]} -eq 0 ]; then
        return 0
    fi
    if ! command -v apt-get >/dev/null; then
        echo "please install what Debian calls: ${missing[*]}" >&2
        return 1
    fi
    if [ "$(id -u)" -ne 0 ] && ! command -v sudo >/dev/null; then
        echo "please run as root: apt-get install ${missing[*]}" >&2
        return 1
    fi
    echo "installing with apt-get: ${missing[*]}"
    as_root apt-get update -qq
    as_root env DEBIAN_FRONTEND=noninteractive \
        apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
}

# meson 1.0 or later; a distribution with an older one gets it into .venv of the source tree.
need_meson() {
    local version

    need meson ninja-build
    version=$(meson --version)
    if [ "$(printf '%s\n' 1.0.0 "$version" | sort -V | head -n 1)" = 1.0.0 ]; then
        return 0
    fi
    if [ ! -x .venv/bin/meson ]; then
        echo "meson is $version; installing 1.0 or later into .venv with pip"
        need python3-venv
        python3 -m venv .venv
        .venv/bin/pip install --quiet 'meson>=1.0'
    fi
    PATH=$PWD/.venv/bin:$PATH
}
