# How C code is built for the Open MPI of a compiler wrapper. To be sourced by scripts that have a function `fail`.
# shellcheck shell=bash

# find_openmpi WRAPPER: sets `version`, the options of the compiler in `openmpi_flags`, and the libraries in `openmpi_libraries`.
find_openmpi() {
    local includes folders folder candidate headers="" pmix=() from=${BASH_SOURCE[0]%/*}
    command -v "$1" >/dev/null || fail "there is no $1: install Open MPI with its headers for developers, or name its compiler"
    version=$("$1" --showme:version 2>/dev/null | grep -oE '[0-9]+\.[0-9]+\.[0-9]+' | head -1) || true
    [[ -n ${version:-} ]] || fail "$1 is not a compiler of Open MPI"
    case $version in
        4.1.* | 5.0.*) ;;
        *) fail "Open MPI $version is not supported: use 4.1.x or 5.0.x" ;;
    esac
    read -ra includes <<<"$("$1" --showme:compile)"
    read -ra folders <<<"$("$1" --showme:libdirs)"
    for folder in $("$1" --showme:incdirs); do
        for candidate in "$folder" "$folder/openmpi"; do
            if [[ -e $candidate/ompi/mca/mtl/mtl.h ]]; then headers=$candidate; fi
        done
    done
    [[ -n $headers ]] || fail "the headers for developers are missing: install libopenmpi-dev, or configure Open MPI --with-devel-headers"

    # Open MPI 5 includes the headers of PMIx, which may be elsewhere.
    pmix=()
    if [[ $version == 5.* && ! -e $headers/pmix.h ]]; then
        read -ra pmix <<<"$(pkg-config --cflags pmix 2>/dev/null || true)"
        for candidate in /usr/lib/*/pmix2/include /usr/include /usr/local/include; do
            if ((${#pmix[@]} == 0)) && [[ -e $candidate/pmix.h ]]; then pmix=("-I$candidate"); fi
        done
        ((${#pmix[@]})) || fail "the headers of PMIx are missing: install libpmix-dev"
    fi

    case $version in
        4.1.*) openmpi_libraries=("$(library libmpi.so.40)" "$(library libopen-rte.so.40)" "$(library libopen-pal.so.40)") ;;
        *) openmpi_libraries=("$(library libmpi.so.40)" "$(library libopen-pal.so.80)" "$(library libpmix.so.2)") ;;
    esac
    # -mcx16: the inline functions of Open MPI need it.
    openmpi_flags=(-std=gnu11 -Wall -Wextra -Wno-unused-parameter -Werror -mcx16 -D_GNU_SOURCE
        -isystem "$headers" "${includes[@]/#-I/-isystem}" ${pmix[@]+"${pmix[@]/#-I/-isystem}"}
        -I"$from/../c/include" -idirafter "$from/headers")
}

# The path of a library in the `folders` of `find_openmpi`.
library() {
    local folder
    for folder in "${folders[@]}" "${folders[@]/%/\/..}" "${folders[@]/%/\/../..}"; do
        if [[ -e $folder/$1 ]]; then
            printf '%s\n' "$folder/$1"
            return
        fi
    done
    fail "there is no $1 in ${folders[*]}"
}
