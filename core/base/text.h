/* SPDX-License-Identifier: Apache-2.0
 * Text in buffers of fixed size, and guesses at what a person meant to type. */
#ifndef TESSERA_CORE_BASE_TEXT_H
#define TESSERA_CORE_BASE_TEXT_H

#include <stdbool.h>
#include <stddef.h>

/* A text being built. It never writes past size, always ends in a zero when size is not 0, and
 * counts what it could not write, so that one function serves both to measure and to fill:
 *
 *     tess_text out = tess_text_in(text, size);
 *     tess_text_add(&out, "%s on %s", kernel, device);
 *     return out.length;
 */
typedef struct tess_text {
    char *data;
    size_t size;   /* bytes at data, the terminating zero among them; 0 only measures */
    size_t length; /* of the whole text; >= size means that it was cut */
} tess_text;

/* An empty text in size bytes at data, which may be NULL when size is 0. */
tess_text tess_text_in(char *data, size_t size);

/* Adds a formatted piece. */
void tess_text_add(tess_text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The one of words that word is most likely a mistyping of, ignoring case; the first of several
 * equally near. NULL when none is near: a far-fetched suggestion is worse than none. */
const char *tess_text_nearest(const char *word, const char *const *words, size_t count);

/* Whether the whole text matches a pattern where '*' stands for any run and '?' for any one byte.
 */
bool tess_text_glob(const char *pattern, const char *text);

#endif
