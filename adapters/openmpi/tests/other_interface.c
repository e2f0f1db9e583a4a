/* A BTL interface that the component is not written for. It must not compile: see host-tests/mpi/contracts. */
#include "opal_config.h"

#include "opal/mca/btl/btl.h"

#undef BTL_VERSION
#define BTL_VERSION OTHER_VERSION

#include "../btl/module.c"
