/* SPDX-License-Identifier: Apache-2.0
 * Text in buffers of fixed size, and guesses at what a person meant to type. */
#include "core/base/text.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Words longer than this are not compared: nobody mistypes them, and it bounds the stack. */
enum { LONGEST_WORD = 63 };

tess_text tess_text_in(char *data, size_t size)
{
    if (size > 0)
        data[0] = '\0';
    return (tess_text){.data = data, .size = size};
}

void tess_text_add(tess_text *text, const char *format, ...)
{
    const bool is_full = text->length >= text->size;
    va_list arguments;

    va_start(arguments, format);
    const int added = is_full ? vsnprintf(NULL, 0, format, arguments)
                              : vsnprintf(text->data + text->length, text->size - text->length,
                                          format, arguments);
    va_end(arguments);
    if (added > 0)
        text->length += (size_t)added;
}

/* Lower case of an ASCII letter; tolower() would ask the program's locale. */
static char lower(char letter)
{
    return letter >= 'A' && letter <= 'Z' ? (char)(letter - 'A' + 'a') : letter;
}

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Insertions, deletions, replacements and swaps of neighbours that turn a into b: row i of the
 * usual table needs only the two rows above it. Both words are at most LONGEST_WORD long. */
static size_t edit_distance(const char *a, const char *b)
{
    size_t rows[3][LONGEST_WORD + 1];
    const size_t a_length = strlen(a);
    const size_t b_length = strlen(b);

    for (size_t j = 0; j <= b_length; j++)
        rows[0][j] = j;
    for (size_t i = 1; i <= a_length; i++) {
        size_t *const row = rows[i % 3];
        const size_t *const above = rows[(i + 2) % 3];
        const size_t *const above_that = rows[(i + 1) % 3];

        row[0] = i;
        for (size_t j = 1; j <= b_length; j++) {
            const char x = lower(a[i - 1]);
            const char y = lower(b[j - 1]);

            row[j] = least(least(above[j], row[j - 1]) + 1, above[j - 1] + (x != y));
            if (i > 1 && j > 1 && x == lower(b[j - 2]) && y == lower(a[i - 2]))
                row[j] = least(row[j], above_that[j - 2] + 1);
        }
    }
    return rows[a_length % 3][b_length];
}

const char *tess_text_nearest(const char *word, const char *const *words, size_t count)
{
    const size_t length = strlen(word);
    const char *nearest = NULL;
    size_t best;

    if (length < 2 || length > LONGEST_WORD)
        return NULL;
    /* A third of the letters wrong is still a mistyping, in a short word one letter. */
    best = (length < 6 ? 1 : length / 3) + 1;
    for (size_t i = 0; i < count; i++) {
        if (strlen(words[i]) > LONGEST_WORD)
            continue;

        const size_t distance = edit_distance(word, words[i]);

        if (distance < best) {
            best = distance;
            nearest = words[i];
        }
    }
    return nearest;
}

bool tess_text_glob(const char *pattern, const char *text)
{
    const char *star = NULL;  /* behind the last '*' met */
    const char *retry = NULL; /* where the text after that run begins */

    while (*text != '\0') {
        if (*pattern == '*') {
            star = ++pattern;
            retry = text;
        } else if (*pattern != '\0' && (*pattern == '?' || *pattern == *text)) {
            pattern++;
            text++;
        } else if (star != NULL) {
            /* Only the last run need grow: what the earlier ones took is the shortest that fits,
             * and leaves the most for the rest. */
            pattern = star;
            text = ++retry;
        } else {
            return false;
        }
    }
    while (*pattern == '*')
        pattern++;
    return *pattern == '\0';
}
