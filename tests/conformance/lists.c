/* SPDX-License-Identifier: Apache-2.0
 * Checks every line of a list of tests/data. */
#include "tests/conformance/family.h"

#include <stdio.h>

static const char *path;

static void strata(tess_family *family)
{
    tess_family_add_file(family, path);
}

int main(int argc, char **argv)
{
    tess_family_plan plan = {.strata = strata};

    if (argc != 3) {
        fprintf(stderr, "usage: %s BACKEND FILE\n", argv[0]);
        return 1;
    }
    path = argv[2];
    plan.name = argv[2];
    return tess_family_main(&plan, argc, argv);
}
