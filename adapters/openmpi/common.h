/* What both components need: the place of this process, and how errors of Towline become those of Open MPI.
 * Include a component's own headers of Open MPI before this file. */
#ifndef TOWLINE_OPENMPI_COMMON_H
#define TOWLINE_OPENMPI_COMMON_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "opal/util/output.h"
#include "opal/util/proc.h"
#if OMPI_MAJOR_VERSION >= 5
#include "opal/mca/pmix/pmix-internal.h"
#define TOWLINE_MODEX_SCOPE PMIX_GLOBAL
#else
#include "opal/mca/pmix/pmix.h"
#define TOWLINE_MODEX_SCOPE OPAL_PMIX_GLOBAL
#endif
#include "towline.h"

/* Spawned jobs of one mpirun take their numbers from the highest one downwards, in blocks of this size. */
#define TOWLINE_SPAWN_BLOCK 64

/* The number of a process among all jobs of one mpirun. In the first job it is the rank in MPI_COMM_WORLD, so that Towline's fast
 * numbering fits. `numbers`: how many there are. */
static inline uint32_t towline_number_of(opal_process_name_t name, uint32_t numbers)
{
    uint32_t job = name.jobid & 0xffff; /* the upper half names the mpirun */
    uint32_t below;
    if (job <= 1) {
        return name.vpid % numbers;
    }
    below = (job - 2) * TOWLINE_SPAWN_BLOCK + name.vpid;
    return numbers - 1 - below % numbers;
}

/* The place of this process. All jobs of one mpirun share the secret that Open MPI gives to transports. */
static inline int towline_own_place(uint32_t numbers, uint32_t peers, towline_place_t *place)
{
    const char *secret = getenv("OMPI_MCA_orte_precondition_transports");
    char name[64];
    int code;
    if (NULL == secret || strlen(secret) < 16) {
        /* A process that was started without mpirun. Nobody else joins its job, so the name need not be secret. */
        snprintf(name, sizeof name, "towline single job %08x %08x", OPAL_PROC_MY_NAME.jobid, (unsigned) getpid());
        secret = name;
    }
    code = towline_place_from_secret(secret, strlen(secret), towline_number_of(OPAL_PROC_MY_NAME, numbers), place);
    place->numbers = numbers;
    place->peers = peers;
    place->local = opal_process_info.num_local_peers + 1;
    place->local_rank = opal_process_info.my_local_rank;
    if (place->local_rank >= place->local || place->local > numbers) {
        place->local = 1;
        place->local_rank = 0;
    }
    return code;
}

/* Prints the text of the last error, which says whose fault it is and what to do. */
static inline void towline_print_error(const char *component, const char *what)
{
    char text[1024] = "";
    towline_error_text(text, sizeof text);
    opal_output(0, "%s: %s: %s", component, what, text);
}

/* Appends the counts of this process to the file <TOWLINE_MPI_COUNTERS>.<pid>, as one JSON line, if the variable is set. */
static inline void towline_write_counters(const char *json)
{
    const char *prefix = getenv("TOWLINE_MPI_COUNTERS");
    char path[4096];
    FILE *file;
    if (NULL == prefix || snprintf(path, sizeof path, "%s.%ld", prefix, (long) getpid()) >= (int) sizeof path) {
        return;
    }
    file = fopen(path, "a");
    if (NULL == file) {
        opal_output(0, "towline: cannot write %s, which TOWLINE_MPI_COUNTERS names", path);
        return;
    }
    fprintf(file, "%s\n", json);
    fclose(file);
}

#endif
