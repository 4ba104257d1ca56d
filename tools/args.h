/* SPDX-License-Identifier: Apache-2.0
 * Command-line options as a table: one line each is parsed, explained and suggested from. */
#ifndef TESSERA_TOOLS_ARGS_H
#define TESSERA_TOOLS_ARGS_H

#include "tools/tool.h"

#include <stdbool.h>
#include <stdint.h>

typedef enum tool_option_kind {
    TOOL_FLAG,    /* bool: set to true */
    TOOL_TEXT,    /* const char *: NULL when not given */
    TOOL_INTEGER, /* tool_integer, between least and most */
    TOOL_REAL,    /* tool_real, finite */
    TOOL_SEED,    /* tool_seed: any 64 bits */
    TOOL_CHOICE   /* const char *: one word of `choices`, "bshd|bhsd" */
} tool_option_kind;

/* Values that know whether they were given. */
typedef struct tool_integer {
    int64_t value;
    bool is_set;
} tool_integer;

typedef struct tool_real {
    double value;
    bool is_set;
} tool_real;

typedef struct tool_seed {
    uint64_t value;
    bool is_set;
} tool_seed;

struct tool_option {
    const char *name; /* without the dashes */
    char letter;      /* '\0': none */
    tool_option_kind kind;
    size_t offset;        /* of the value in the struct the verb reads its options into */
    const char *argument; /* what the help calls the value; NULL for a flag */
    const char *help;
    int64_t least, most; /* TOOL_INTEGER */
    const char *choices; /* TOOL_CHOICE */
};

/* Reads the options of a verb into *values, which starts out zero. --help is understood everywhere.
 *
 * out_first  receives the index of the first argument that is no option; they are moved behind the
 *            options, in their order
 *
 * Returns TOOL_OK, or TOOL_USAGE after a complaint; sets *out_done after having printed the help.
 */
int tool_args_read(const tool_verb *verb, int argc, char **argv, void *values, int *out_first,
                   bool *out_done);

/* Prints a verb's usage, text and options. */
void tool_args_help(const tool_verb *verb);

/* Prints text and a newline, breaking lines that grow too long between words; each line but the
 * first is indented by `indent`, and `column` is where the cursor stands. */
void tool_args_wrap(const char *text, int column, int indent);

/* Whole numbers separated by commas, "3,4,5"; complains under the option's name.
 *
 * values  room for `most` numbers
 *
 * Returns how many there are, 0 after a complaint. */
size_t tool_args_integers(const char *option, const char *text, int64_t *values, size_t most);

/* Real numbers separated by commas; as tool_args_integers(). */
size_t tool_args_reals(const char *option, const char *text, double *values, size_t most);

#endif
