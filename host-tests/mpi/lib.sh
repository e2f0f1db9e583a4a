# What the scripts of this folder share. To be sourced.
# shellcheck shell=bash
. "$(dirname "${BASH_SOURCE[0]}")/../scripts/lib.sh"
here=$root/host-tests/mpi
# All that is fetched and built, kept until the target directory is removed.
cache=$target/mpi
# The folder of Debian 13, which has Open MPI 5.0. The system itself has Open MPI 4.1.
debian=$cache/debian13
# Debian's servers, as the system's own sources name them.
mirror() {
    { cat /etc/apt/sources.list.d/debian.sources /etc/apt/sources.list 2>/dev/null || true; } |
        sed -nE 's/^URIs: *([^ ]+).*/\1/p; s/^deb (\[[^]]*\] )?(https?:[^ ]+).*/\2/p' | head -1
}
keyring=/usr/share/keyrings/debian-archive-keyring.gpg

# need_version 4.1|5.0: provides the Open MPI of this version, with its headers and compiler.
need_version() {
    ((EUID == 0)) || fail "only root can run this: each MPI job gets its own view of /dev/shm and of processes (unshare)"
    need unshare=util-linux
    case $1 in
        4.1)
            need mpirun.openmpi=openmpi-bin mpicc.openmpi=libopenmpi-dev make=make cc=gcc
            mpirun.openmpi --version | grep -q ' 4\.1\.' || fail "this system's Open MPI is not of version 4.1: use Debian 12"
            ;;
        5.0) "$here/root" ;;
        *) fail "there is no Open MPI $1 here: choose 4.1 or 5.0" ;;
    esac
}
