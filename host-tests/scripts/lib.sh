# Shared by all scripts: where things are, steps with names and times, tools. To be sourced.
# shellcheck shell=bash
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
target=${CARGO_TARGET_DIR:-$root/target}
logs=${TOWLINE_TEST_LOGS:-$target/test-logs/single}
# Everything is built once: what a second build would use, and all of the debug information but lines, costs time and room.
export CARGO_INCREMENTAL=0 CARGO_PROFILE_DEV_DEBUG=line-tables-only
# Debian's compiler, which comes with the library sources that bare-metal targets are built from.
debian_rustc=/usr/bin/rustc
debian_sources=/usr/lib/rustlib/src/rust/library

# step NAME COMMAND...: runs it, tells its time, and ends the run with its name if it fails. The command is a program,
# not a function: in a function called here, `set -e` would not hold.
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

# table: every step so far with its seconds, the slowest first, then the seconds of the whole run.
table() {
    local seconds name
    printf '\nseconds  step\n'
    printf '%s\n' "${steps[@]}" | sort -rn | while read -r seconds name; do printf '%7d  %s\n' "$seconds" "$name"; done
    printf '%7d  in all\n' "$SECONDS"
}

# own_logs NAME: the logs of this run, and of every script that it starts, go into a folder that is empty at first. A run
# inside another keeps the folder of the outer one.
own_logs() {
    [[ -z ${TOWLINE_TEST_LOGS:-} ]] || return 0
    export TOWLINE_TEST_LOGS=$target/test-logs/$1
    logs=$TOWLINE_TEST_LOGS
    rm -rf "$logs"
    mkdir -p "$logs"
}

# shard_of N/M: from then on, `mine` holds for every M-th thing that is asked for, from the N-th on; without, for each.
asked=0 shard=1 shards=1
shard_of() {
    [[ -n ${1:-} ]] || return 0
    [[ $1 =~ ^([0-9]+)/([0-9]+)$ ]] || fail "not a shard, such as 2/5: $1"
    shard=${BASH_REMATCH[1]} shards=${BASH_REMATCH[2]}
    ((shard >= 1 && shard <= shards)) || fail "there is no shard $1"
}

mine() {
    asked=$((asked + 1))
    (((asked - shard) % shards == 0))
}

fail() {
    printf '%s\n' "$*" >&2
    exit 1
}

have() {
    command -v "$1" >/dev/null 2>&1
}

# need COMMAND-OR-FILE=PACKAGE...: installs the Debian packages of what is missing, or says which they are.
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
        fail "missing: install these packages (Debian's names), then run again: ${packages[*]}"
    fi
}

# want COMMAND-OR-FILE=PACKAGE...: the same for what only some tests use, which say that they are skipped without it.
# Installs nothing where the system would start a service with it.
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

# What building the binding of verbs takes: it makes a C library and reads C headers.
need_verbs_binding() {
    local libclang
    libclang=$(compgen -G '/usr/lib/llvm-*/lib/libclang.so' | head -1 || true)
    need cmake=cmake cc=gcc "${libclang:-libclang.so}=libclang-dev"
}

# What building for bare metal takes.
need_bare_metal() {
    # The toolchain's own linker, where it has one. Linkers older than 19 keep what nothing refers to.
    local linker
    linker=$(echo "$(rustc --print sysroot)"/lib/rustlib/*/bin/gcc-ld)
    if [[ -x $linker/ld.lld ]]; then PATH=$linker:$PATH; fi
    need ld.lld=lld readelf=binutils
    need_library_of aarch64-unknown-none
}

# What building for targets takes that the active toolchain may not have.
need_library_of() {
    local triple
    for triple in "$@"; do
        [[ -z $(installed_target "$triple") ]] || continue
        need "$debian_rustc=rustc-web"
        fetch_debian_library "$triple"
        [[ -n $(debian_library "$triple") ]] || need "$debian_sources=rust-web-src"
    done
}

# The folder of a target's libraries in the active toolchain, if `rustup target add` put them there.
installed_target() {
    local libs
    libs=$(rustc --print sysroot)/lib/rustlib/$1/lib
    if [[ -d $libs ]]; then echo "$libs"; fi
}

# The sysroot with a target's libraries of Debian's compiler, as Debian builds them on machines of that kind, if they were
# fetched: building them here takes minutes.
debian_library() {
    local sysroot
    sysroot=$target/debian-libraries/$(dpkg-query --show --showformat='${Version}' rustc-web)/usr
    if [[ -d $sysroot/lib/rustlib/$1/lib ]]; then echo "$sysroot"; fi
}

# Fetches them, without any change of this system's lists or packages. Debian has not all its machines at the version of this
# one: then nothing is fetched.
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
        # What has nothing for that machine may complain.
        apt-get "${options[@]}" update || true
        apt-get "${options[@]}" download "libstd-rust-web-dev=$version" && dpkg-deb -x libstd-rust-web-dev_*_$architecture.deb .
        rm -rf lists cache ./*.deb
    ) >"$logs/apt-$architecture.log" 2>&1 || echo "Debian's library for $1 is not to be had: it is built here"
}

# cargo_for TARGET SUBCOMMAND ARGS...: cargo for another target: with the active toolchain if it has the target, else with
# Debian's compiler, which has the target's library with it or builds it from source.
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
