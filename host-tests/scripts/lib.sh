# Shared by all scripts: where things are, steps with names and times, tools. To be sourced.
# shellcheck shell=bash
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
target=${CARGO_TARGET_DIR:-$root/target}
logs=$target/test-logs
# Debian's compiler, which comes with the library sources that bare-metal targets are built from.
debian_rustc=/usr/bin/rustc
debian_sources=/usr/lib/rustlib/src/rust/library

# step NAME COMMAND...: runs it, tells its time, and ends the run with its name if it fails. The command is a program,
# not a function: in a function called here, `set -e` would not hold.
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
        [[ -n $(installed_target "$triple") ]] || need "$debian_rustc=rustc-web" "$debian_sources=rust-web-src"
    done
}

# The folder of a target's libraries in the active toolchain, if `rustup target add` put them there.
installed_target() {
    local libs
    libs=$(rustc --print sysroot)/lib/rustlib/$1/lib
    if [[ -d $libs ]]; then echo "$libs"; fi
}

# cargo_for TARGET SUBCOMMAND ARGS...: cargo for another target: with the active toolchain if it has the target, else with
# Debian's compiler, which builds the target's library from source.
cargo_for() {
    local triple=$1 subcommand=$2 library=core
    shift 2
    if [[ $triple == *-linux-* ]]; then library=std,panic_unwind,test; fi
    if [[ -n $(installed_target "$triple") ]]; then
        cargo "$subcommand" --target "$triple" "$@"
    else
        RUSTC_BOOTSTRAP=1 RUSTC=$debian_rustc cargo "$subcommand" -Zbuild-std=$library --target "$triple" "$@"
    fi
}

mkdir -p "$logs"
