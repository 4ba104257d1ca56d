/* SPDX-License-Identifier: Apache-2.0
 * Holds the public structs and constants to the binary interface that was promised. */
#include <stdio.h>
#include <string.h>
#include <tessera/tessera.h>

/* A struct size that was recorded. */
typedef struct age {
    const char *type;
    size_t recorded;
    size_t now;
} age;

#define FROZEN(type, size)
#define AGE(type, size)
#define MEMBER(type, member, offset)
#define CONSTANT(name, value)

static const age frozen[] = {
#undef FROZEN
#define FROZEN(type, size) {#type, size, sizeof(type)},
#include "interface.def"
#undef FROZEN
#define FROZEN(type, size)
};

static const age ages[] = {
#undef AGE
#define AGE(type, size) {#type, size, sizeof(type)},
#include "interface.def"
#undef AGE
#define AGE(type, size)
};

enum { FROZEN_COUNT = sizeof frozen / sizeof frozen[0], AGE_COUNT = sizeof ages / sizeof ages[0] };

static int failures;

static void expect(const char *what, const char *detail, unsigned long long seen,
                   unsigned long long recorded)
{
    if (seen == recorded)
        return;
    printf("%s%s is %llu; it was promised to be %llu\n", what, detail, seen, recorded);
    failures++;
}

static void check_members(void)
{
#undef MEMBER
#define MEMBER(type, member, offset) expect(#type ".", #member, offsetof(type, member), offset);
#include "interface.def"
#undef MEMBER
#define MEMBER(type, member, offset)
}

static void check_constants(void)
{
#undef CONSTANT
#define CONSTANT(name, value) expect(#name, "", (unsigned long long)name, value);
#include "interface.def"
}

/* Each line of a growing struct is larger than the one before; the last is the struct of today. */
static void check_ages(void)
{
    for (int i = 0; i < AGE_COUNT; i++) {
        const int has_next = i + 1 < AGE_COUNT && strcmp(ages[i].type, ages[i + 1].type) == 0;

        if (!has_next)
            expect(ages[i].type, "'s size", ages[i].now, ages[i].recorded);
        else if (ages[i + 1].recorded <= ages[i].recorded) {
            printf("%s shrinks from %zu to %zu\n", ages[i].type, ages[i].recorded,
                   ages[i + 1].recorded);
            failures++;
        }
    }
}

int main(void)
{
    for (int i = 0; i < FROZEN_COUNT; i++)
        expect(frozen[i].type, "'s size", frozen[i].now, frozen[i].recorded);
    check_ages();
    check_members();
    check_constants();
    return failures > 0;
}
