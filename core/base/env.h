/* SPDX-License-Identifier: Apache-2.0
 * The environment variables: read once per context, checked, copied; the only door to getenv. */
#ifndef TESSERA_CORE_BASE_ENV_H
#define TESSERA_CORE_BASE_ENV_H

#include "core/base/host.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Longest text value with its terminating zero. */
enum { TESS_ENV_SIZE = 256 };

typedef char tess_env_TEXT[TESS_ENV_SIZE]; /* "" is not set */
typedef int64_t tess_env_INTEGER;
typedef bool tess_env_SWITCH;
typedef int32_t tess_env_CHOICE; /* place of the word in env.def, counted from 1 */
typedef uint32_t tess_env_SET;   /* bit 0 for the first word in env.def */

/* One member per variable, zero where it is not set or empty: backend, kernel, cpu_isa, ... */
typedef struct tess_env {
#define TESS_ENV(kind, member, name, accepted, fallback, help) tess_env_##kind member;
#include "core/base/env.def"
#undef TESS_ENV
} tess_env;

/* Values of tess_env.cpu_isa. Those of tess_env.log are tess_log_level, those of tess_env.trace the
 * TESS_TRACE_ bits. */
enum {
    TESS_ENV_ISA_SCALAR = 1,
    TESS_ENV_ISA_PORTABLE = 2,
    TESS_ENV_ISA_NEON = 3,
    TESS_ENV_ISA_SVE = 4,
    TESS_ENV_ISA_AVX2 = 5,
    TESS_ENV_ISA_AVX512 = 6,
    TESS_ENV_ISA_AMX = 7
};

/* Reads every variable into *out_env, which is untouched on failure. No pointer into the
 * environment is kept. A value that is not accepted fails with TESS_INVALID, naming the variable,
 * the value and what it takes. */
tess_status tess_env_read(const tess_host *host, tess_env *out_env);

/* Logs a warning for each TESSERA_ name that is no variable, with the nearest one. Apart from
 * tess_env_read() because the log's level is itself read from there. */
void tess_env_warn_unknown(const tess_host *host);

/* A variable as `tessera env` and the manual show it. */
typedef struct tess_env_entry {
    const char *name;
    const char *type;     /* "text", "integer", "switch", "choice" or "set" */
    const char *fallback; /* what happens when it is not set */
    const char *accepted;
    const char *help;
} tess_env_entry;

size_t tess_env_count(void);

/* index below tess_env_count(). */
const tess_env_entry *tess_env_entry_at(size_t index);

/* The value as it stands in the environment, unchecked; NULL when it is not set. Valid until
 * somebody changes the environment. */
const char *tess_env_current(const char *name);

#endif
