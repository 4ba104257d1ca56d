/* SPDX-License-Identifier: Apache-2.0
 * What the machine calls itself. */
#include "bench/machine.h"

#include <stdio.h>
#include <string.h>

/* What follows the colon of a line "model name : AMD EPYC", without its newline. */
static void copy_value(const char *line, char *out, size_t size)
{
    const char *value = strchr(line, ':');

    if (!value)
        return;
    value += 1 + strspn(value + 1, " \t");
    snprintf(out, size, "%.*s", (int)strcspn(value, "\n"), value);
}

void tess_machine_name(char *out, size_t size)
{
    /* x86 has the first, some ARM systems the second or a device tree. */
    static const char *const keys[] = {"model name", "Model"};
    char line[512];
    FILE *file = fopen("/proc/cpuinfo", "r");

    out[0] = '\0';
    while (file && !out[0] && fgets(line, sizeof line, file))
        for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
            if (strncmp(line, keys[i], strlen(keys[i])) == 0)
                copy_value(line, out, size);
    if (file)
        fclose(file);
    if (out[0])
        return;
    file = fopen("/proc/device-tree/model", "r");
    if (file && fgets(line, sizeof line, file))
        snprintf(out, size, "%s", line);
    if (file)
        fclose(file);
}
