/* SPDX-License-Identifier: Apache-2.0
 * Problem text: random bytes and mutated lines never crash the reader, and what it reads comes
 * back.
 */
#include "core/schedule/problem_text.h"
#include "tests/kit/generate.h"
#include "tests/kit/guard.h"
#include "tests/kit/random.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { TEXT_SIZE = 1 << 16, LINE_SIZE = 1 << 15, SECONDS = 3, MOST_FAILURES = 10 };

static int failures;
static long read_lines, tried;

/* Pieces that make a mutation more than noise. */
static const char *const pieces[] = {"fwd",
                                     "bwd",
                                     " ",
                                     "b2",
                                     "hq",
                                     "hk-1",
                                     "q0",
                                     "k2147483647",
                                     "k2147483648",
                                     "d0",
                                     "dv",
                                     "f32",
                                     "bf16",
                                     "e4m3",
                                     "of=",
                                     "of=f16",
                                     "causal",
                                     "topleft",
                                     "window=",
                                     "window=-1,0",
                                     "window=9223372036854775807,-9223372036854775808",
                                     "scale=",
                                     "scale=1e400",
                                     "scale=-0.0",
                                     "scale=.",
                                     "scale=1e-46",
                                     "scale=nan",
                                     "softcap=-1",
                                     "softcap=inf",
                                     "alibi",
                                     "sink",
                                     "bias=",
                                     "bias=f16",
                                     "biasbcast=bb",
                                     "splits=65537",
                                     "lensq=",
                                     "lensq=0x2147483647",
                                     "lensq=1,2,3",
                                     "lensk=4x4",
                                     "lensk=,",
                                     "usedq=1,1",
                                     "usedk=5x3",
                                     "page=0",
                                     "page=16",
                                     "index=i64",
                                     "deterministic",
                                     "gap=3",
                                     "layout=",
                                     "fill=",
                                     "fill=equal",
                                     "seed=18446744073709551615",
                                     "seed=-1",
                                     "\t",
                                     "\n",
                                     "=",
                                     ",",
                                     "x",
                                     "\xff",
                                     "0000000000000000000001"};

static void fail(const char *what, const char *text)
{
    if (failures++ < MOST_FAILURES)
        printf("FAIL line: %s: \"%.2000s\"\n", what, text);
}

/* ---- One text -------------------------------------------------------------------------------- */

/* A line that was read is written, and read again as the same struct and the same text. */
static void expect_round_trip(const tess_line *line, const char *text)
{
    static char first[TEXT_SIZE], second[TEXT_SIZE];
    tess_text out = tess_text_in(first, sizeof first);
    tess_line again;

    tess_line_write(line, &out);
    if (out.length >= sizeof first) {
        fail("is written longer than any line is", text);
        return;
    }
    memset(&again, 0xA5, sizeof again);
    if (tess_line_read(first, &again, NULL) != TESS_OK) {
        fail("is written as something that cannot be read", first);
        return;
    }
    out = tess_text_in(second, sizeof second);
    tess_line_write(&again, &out);
    if (strcmp(first, second) != 0)
        fail("is written otherwise after reading it back", first);
}

/* The text in a buffer whose end is the end of readable memory. */
static void try_text(const char *text)
{
    static char untouched[sizeof(tess_line)], why[512];
    static tess_line line;
    const size_t size = strlen(text) + 1;
    tess_text reason = tess_text_in(why, tried % 3 ? sizeof why : 1);
    tess_buffer buffer;

    tried++;
    if (!tess_buffer_make(size, &buffer)) {
        fail("no memory", "");
        return;
    }
    memcpy(buffer.data, text, size);
    memset(&line, 0x5A, sizeof line);
    memset(untouched, 0x5A, sizeof untouched);
    if (tess_line_read(buffer.data, &line, tried % 5 ? &reason : NULL) == TESS_OK) {
        read_lines++;
        expect_round_trip(&line, text);
    } else {
        if (memcmp(&line, untouched, sizeof line) != 0)
            fail("was refused and wrote its result", text);
        if (tried % 5 && reason.length == 0)
            fail("was refused without a reason", text);
    }
    tess_buffer_free(&buffer);
}

/* ---- Making texts ---------------------------------------------------------------------------- */

static void random_bytes(tess_random *random, char *text, size_t most)
{
    const size_t size = (size_t)tess_random_below(random, (int64_t)most);

    for (size_t i = 0; i < size; i++) {
        const char byte = (char)(1 + tess_random_below(random, 255));

        text[i] = byte;
    }
    text[size] = '\0';
}

static void add_piece(tess_random *random, char *text)
{
    const char *piece = pieces[tess_random_below(random, sizeof pieces / sizeof *pieces)];
    const size_t length = strlen(text), extra = strlen(piece);
    const size_t at = (size_t)tess_random_below(random, (int64_t)length + 1);

    if (length + extra + 2 >= LINE_SIZE)
        return;
    memmove(text + at + extra, text + at, length - at + 1);
    memcpy(text + at, piece, extra);
}

static void change_byte(tess_random *random, char *text)
{
    static const char useful[] = "0123456789 =,x-.ebfhqkd";
    const size_t length = strlen(text);

    if (length == 0)
        return;
    text[tess_random_below(random, (int64_t)length)] =
        tess_random_once_in(random, 4)
            ? (char)(1 + tess_random_below(random, 255))
            : useful[tess_random_below(random, (int64_t)sizeof useful - 1)];
}

/* Cuts a stretch out, or repeats it. */
static void cut_or_repeat(tess_random *random, char *text)
{
    const size_t length = strlen(text);
    size_t from, size;

    if (length == 0)
        return;
    from = (size_t)tess_random_below(random, (int64_t)length);
    size = 1 + (size_t)tess_random_below(random, (int64_t)(length - from));
    if (tess_random_once_in(random, 2) || length + size + 1 >= LINE_SIZE) {
        memmove(text + from, text + from + size, length - from - size + 1);
        return;
    }
    memmove(text + from + size, text + from, length - from + 1);
}

static void mutate(tess_random *random, char *text)
{
    const int64_t changes = tess_random_below(random, 5);

    for (int64_t i = 0; i < changes; i++)
        switch (tess_random_below(random, 4)) {
        case 0:
            add_piece(random, text);
            break;
        case 1:
            cut_or_repeat(random, text);
            break;
        default:
            change_byte(random, text);
            break;
        }
}

static void random_line(tess_random *random, char *text)
{
    tess_text out = tess_text_in(text, LINE_SIZE);
    tess_line line;

    tess_generate_line(tess_random_next(random) >> 30, &line);
    tess_line_write(&line, &out);
}

int main(void)
{
    static char text[LINE_SIZE];
    const char *seconds = getenv("TESSERA_FUZZ_SECONDS");
    const time_t end = time(NULL) + (seconds ? atoi(seconds) : SECONDS);
    tess_random random = tess_random_start(1, 0xF022);

    for (int turn = 0; failures == 0 && (turn < 3000 || time(NULL) < end); turn++) {
        if (turn % 8 == 0) {
            random_bytes(&random, text, turn % 64 ? 60 : 5000);
        } else if (turn % 8 == 1) {
            snprintf(text, sizeof text, "fwd ");
            for (int i = 0; i < 12; i++) {
                add_piece(&random, text);
                strcat(text, " ");
            }
        } else {
            random_line(&random, text);
            if (turn % 8 > 2)
                mutate(&random, text);
        }
        try_text(text);
    }
    printf("%ld texts, %ld read and written back, %d failures\n", tried, read_lines, failures);
    return failures || read_lines == 0;
}
