# Functions and variables of all scripts: paths, steps with names and times, tools. To be sourced.
# shellcheck shell=bash
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
target=${CARGO_TARGET_DIR:-$root/target}
logs=${TOWLINE_TEST_LOGS:-$target/test-logs/single}
# Everything is built once, so incremental compilation is off. Line tables are the only debug information, since more of it costs
# time and disk space.
export CARGO_INCREMENTAL=0 CARGO_PROFILE_DEV_DEBUG=line-tables-only
# How cargo builds all tests of the workspace, and the programs that they start.
# shellcheck disable=SC2034
test_build=(test --no-run --workspace --features towline/tokio)
# Debian's compiler. Its package of library sources can build the library for targets that the active toolchain lacks.
debian_rustc=/usr/bin/rustc
debian_sources=/usr/lib/rustlib/src/rust/library

# step NAME COMMAND...: runs the command and prints its time. If the command fails, the run ends with its name. The command must be
# a program, since `set -e` has no effect in a function called here.
steps=()
step() {
    local name=$1 start=$SECONDS status=0
    shift
    printf '\n=== %s\n' "$name"
    "$@" || status=$?
    if ((status != 0)); then
        printf '=== FAILED: %s (exit status %d after %d s)\n' "$name" "$status" $((SECONDS - start)) >&2
        exit 1
    fi
    printf '=== %s: ok, %d s\n' "$name" $((SECONDS - start))
    steps+=("$((SECONDS - start)) $name")
}

# table: prints all steps with their seconds, the slowest first, and then the seconds of the whole run.
table() {
    local seconds name
    printf '\nseconds  step\n'
    printf '%s\n' "${steps[@]}" | sort -rn | while read -r seconds name; do printf '%7d  %s\n' "$seconds" "$name"; done
    printf '%7d  in all\n' "$SECONDS"
}

# own_logs NAME: creates an empty folder for the logs of this run and of the scripts that it starts. A run inside another run uses
# the folder of the outer run.
own_logs() {
    [[ -z ${TOWLINE_TEST_LOGS:-} ]] || return 0
    export TOWLINE_TEST_LOGS=$target/test-logs/$1
    logs=$TOWLINE_TEST_LOGS
    rm -rf "$logs"
    mkdir -p "$logs"
}

# shard_of N/M: chooses shard N of M. A script calls `mine` once for each piece of work, and does the work if the call succeeds.
# The N-th call and every M-th call after it succeed. Without an argument, every call succeeds.
calls=0 shard=1 shards=1
shard_of() {
    [[ -n ${1:-} ]] || return 0
    [[ $1 =~ ^([0-9]+)/([0-9]+)$ ]] || fail "$1 is not a shard: write it as N/M, for example 2/5"
    shard=${BASH_REMATCH[1]} shards=${BASH_REMATCH[2]}
    ((shard >= 1 && shard <= shards)) || fail "there is no shard $1: N/M needs 1 <= N <= M"
}

mine() {
    calls=$((calls + 1))
    (((calls - shard) % shards == 0))
}

fail() {
    printf '%s\n' "$*" >&2
    exit 1
}

have() {
    command -v "$1" >/dev/null 2>&1
}

# need COMMAND-OR-FILE=PACKAGE...: installs the Debian packages of missing commands and files. Where it cannot, it fails with
# their names.
need() {
    local pair packages=()
    for pair in "$@"; do
        [[ -e ${pair%%=*} ]] || have "${pair%%=*}" || packages+=("${pair#*=}")
    done
    ((${#packages[@]} == 0)) && return
    if ((EUID == 0)) && have apt-get; then
        echo "installing: ${packages[*]}"
        export DEBIAN_FRONTEND=noninteractive
        { apt-get update && apt-get install -y --no-install-recommends "${packages[@]}"; } >"$logs/apt.log" 2>&1 ||
            { cat "$logs/apt.log" && fail "could not install: ${packages[*]}"; }
    else
        fail "programs are missing: install these packages (Debian's names), then run again: ${packages[*]}"
    fi
}

# want COMMAND-OR-FILE=PACKAGE...: the same for programs that only some tests use. Without them, those tests are skipped and report
# that. Installs nothing under systemd, which would start a service of the package.
want() {
    local pair
    if ((EUID == 0)) && have apt-get && [[ ! -d /run/systemd/system ]]; then
        need "$@"
        return
    fi
    for pair in "$@"; do
        [[ -e ${pair%%=*} ]] || have "${pair%%=*}" || echo "not installed, so some tests are skipped: ${pair#*=}"
    done
}

# Installs the tools that the build of the verbs binding needs: it builds a C library and reads C headers.
need_verbs_binding() {
    local libclang
    libclang=$(compgen -G '/usr/lib/llvm-*/lib/libclang.so' | head -1 || true)
    need cmake=cmake cc=gcc "${libclang:-libclang.so}=libclang-dev"
}

# Installs the nightly toolchain, which fuzzing and the sanitizers need.
need_nightly() {
    cargo +nightly --version >/dev/null 2>&1 || rustup toolchain install nightly --profile minimal
}

# Installs the tools for bare-metal builds.
need_bare_metal() {
    # The toolchain's own linker is preferred, since ld.lld before version 19 keeps unreferenced symbols.
    local linker
    linker=$(echo "$(rustc --print sysroot)"/lib/rustlib/*/bin/gcc-ld)
    if [[ -x $linker/ld.lld ]]; then PATH=$linker:$PATH; fi
    need ld.lld=lld readelf=binutils
    need_library_of aarch64-unknown-none
}

# need_library_of TARGET...: provides the libraries of targets that the active toolchain may lack.
need_library_of() {
    local triple
    for triple in "$@"; do
        [[ -z $(installed_target "$triple") ]] || continue
        need "$debian_rustc=rustc-web"
        fetch_debian_library "$triple"
        [[ -n $(debian_library "$triple") ]] || need "$debian_sources=rust-web-src"
    done
}

# installed_target TARGET: prints the folder of the target's libraries in the active toolchain, if `rustup target add` installed it.
installed_target() {
    local libs
    libs=$(rustc --print sysroot)/lib/rustlib/$1/lib
    if [[ -d $libs ]]; then echo "$libs"; fi
}

# debian_library TARGET: prints the sysroot with Debian's build of the target's libraries, if they were fetched. Building them here
# takes minutes.
debian_library() {
    local sysroot
    sysroot=$target/debian-libraries/$(dpkg-query --show --showformat='${Version}' rustc-web)/usr
    if [[ -d $sysroot/lib/rustlib/$1/lib ]]; then echo "$sysroot"; fi
}

# fetch_debian_library TARGET: fetches these libraries without changing this system's package lists or packages. Fetches nothing
# if Debian does not have this system's version for that architecture.
fetch_debian_library() {
    local version folder architecture option options=()
    case $1 in
        aarch64-unknown-linux-gnu) architecture=arm64 ;;
        *) return 0 ;;
    esac
    if [[ -n $(debian_library "$1") ]]; then return; fi
    version=$(dpkg-query --show --showformat='${Version}' rustc-web)
    folder=$target/debian-libraries/$version
    mkdir -p "$folder"/{lists,cache/archives}/partial
    for option in APT::Architecture=$architecture APT::Architectures=$architecture Dir::State::lists="$folder/lists" \
        Dir::Cache="$folder/cache" Dir::State::status=/dev/null; do
        options+=(-o "$option")
    done
    (
        cd "$folder"
        # Sources without packages for that architecture may report errors.
        apt-get "${options[@]}" update || true
        apt-get "${options[@]}" download "libstd-rust-web-dev=$version" && dpkg-deb -x libstd-rust-web-dev_*_$architecture.deb .
        rm -rf lists cache ./*.deb
    ) >"$logs/apt-$architecture.log" 2>&1 || echo "Debian's library for $1 is not available, so it is built here"
}

# cargo_for TARGET SUBCOMMAND ARGS...: runs cargo for another target, with the active toolchain if it has the target. Otherwise it
# uses Debian's compiler, with Debian's build of the target's library or with one built from source.
cargo_for() {
    local triple=$1 subcommand=$2 library=core sysroot
    shift 2
    if [[ $triple == *-linux-* ]]; then library=std,panic_unwind; fi
    if [[ $triple == *-linux-* && $subcommand == test ]]; then library+=,test; fi
    if [[ -n $(installed_target "$triple") ]]; then
        cargo "$subcommand" --target "$triple" "$@"
        return
    fi
    sysroot=$(debian_library "$triple")
    if [[ -n $sysroot ]]; then
        RUSTC=$debian_rustc cargo "$subcommand" --config "target.$triple.rustflags=['--sysroot', '$sysroot']" \
            --target "$triple" "$@"
    else
        RUSTC_BOOTSTRAP=1 RUSTC=$debian_rustc cargo "$subcommand" -Zbuild-std=$library --target "$triple" "$@"
    fi
}

mkdir -p "$logs"
