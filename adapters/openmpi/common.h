/* What both components need: the place of this process, and how errors of Towline become those of Open MPI.
 * Include a component's own headers of Open MPI before this file. */
#ifndef TOWLINE_OPENMPI_COMMON_H
#define TOWLINE_OPENMPI_COMMON_H

#include <stdint.h>
#include <stdlib.h>

#include "opal/mca/base/mca_base_var.h"
#include "opal/util/output.h"
#include "opal/util/proc.h"
#if OMPI_MAJOR_VERSION >= 5
#include "opal/mca/pmix/pmix-internal.h"
#else
#include "opal/mca/pmix/pmix.h"
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

/* The place of this process. `name`: the component's, "mtl" or "btl". Returns an Open MPI code; what is wrong was printed then. */
int towline_own_place(const char *name, uint32_t numbers, uint32_t peers, towline_place_t *place);

/* Publishes the cards of this process for a component, after `towline_own_place`. Returns an Open MPI code. */
int towline_publish_cards(const mca_base_component_t *component, const void *cards, size_t length);

/* The cards that another process has published for the same component: a copy, which the caller frees. There is one code,
 * OPAL_ERR_OUT_OF_RESOURCE, where the process has published none, and where they cannot be read, as in the contract of the module
 * exchange. */
int towline_get_cards(const mca_base_component_t *component, const opal_process_name_t *of, void **cards, size_t *length);

/* The values of the settings of Towline, in the order of `towline_setting`; null where the user has given none. */
typedef struct towline_settings_t {
    char **values;
    size_t count;
} towline_settings_t;

/* Makes a variable of a component of each setting of Towline: `tcp.include` becomes `mtl_towline_tcp_include`. */
int towline_register_settings(const mca_base_component_t *component, towline_settings_t *settings);

/* The settings that the user has given, as texts, in an array that ends with null, after those of the component. The caller frees
 * it. */
char **towline_given_settings(const towline_settings_t *settings, const char *const *of_component, size_t count);

void towline_free_settings(char **given);

/* Prints the text of the last error, which says whose fault it is and what to do. */
void towline_print_error(const char *component, const char *what);

/* Appends the counts of this process to the file <TOWLINE_MPI_COUNTERS>.<pid>, as one JSON line, if the variable is set. */
void towline_write_counters(const char *json);

#endif
