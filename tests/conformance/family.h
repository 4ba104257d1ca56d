/* SPDX-License-Identifier: Apache-2.0
 * The runner of a conformance family: problem lines, checked on every device. */
#ifndef TESSERA_TESTS_CONFORMANCE_FAMILY_H
#define TESSERA_TESTS_CONFORMANCE_FAMILY_H

#include "core/schedule/problem_text.h"

#include <stdbool.h>

/* The lines of one family. */
typedef struct tess_family tess_family;

/* What a family is made of. */
typedef struct tess_family_plan {
    const char *name;

    /* Adds the lines that somebody thought of. */
    void (*strata)(tess_family *family);

    /* Turns a random line into one of this family, false when that cannot be; NULL: there are no
     * random lines. */
    bool (*narrow)(tess_line *line);
    int random;       /* how many of them, when TESSERA_TEST_RANDOM does not say */
    bool is_backward; /* random lines are of the backward pass, else of the forward one */

    /* Every backend must refuse every line with a reason. Otherwise the CPU must refuse none. */
    bool is_refused;
} tess_family_plan;

/* Adds one line, written as printf() would; a line that cannot be read ends the program. */
#if defined(__GNUC__)
__attribute__((format(printf, 2, 3)))
#endif
void tess_family_add(tess_family *family, const char *format, ...);

/* Adds the lines of a file: one a line, '#' starts a comment. */
void tess_family_add_file(tess_family *family, const char *path);

/* The body of main(). The first argument names a backend; without it every device is used. A
 * failure prints the line that replays it and the smaller one that the shrinker found.
 *
 * TESSERA_TEST_RANDOM is how many random lines are added, TESSERA_TEST_SEED (1) which. With
 * TESSERA_TEST_SHARE=n a device gets every n-th line only, from one on that depends on its name:
 * for devices that are slow and many. */
int tess_family_main(const tess_family_plan *plan, int argc, char **argv);

/* For narrow(): replaces an FP8 type by a 16-bit one. */
void tess_family_widen_type(tess_line *line);

/* For narrow(): one length for all, no arrays of lengths, no pages. */
void tess_family_make_dense(tess_line *line);

#endif
