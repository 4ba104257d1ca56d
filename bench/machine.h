/* SPDX-License-Identifier: Apache-2.0
 * What the machine calls itself: a number without it is worth little. */
#ifndef TESSERA_BENCH_MACHINE_H
#define TESSERA_BENCH_MACHINE_H

#include <stddef.h>

/* The processor's name, cut to size; empty where the system does not tell. */
void tess_machine_name(char *out, size_t size);

#endif
