/* SPDX-License-Identifier: Apache-2.0
 * Random lines and shrinking: every option is drawn, every failure stays one and gets small. */
#include "tests/kit/generate.h"
#include "tests/kit/random.h"
#include "tests/kit/shape.h"
#include "tests/kit/shrink.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

enum { SIZE = 4096 };

static void write_line(const tess_line *line, char text[SIZE])
{
    tess_text out = tess_text_in(text, SIZE);

    tess_line_write(line, &out);
    assert_true(out.length < SIZE);
}

static void read_line(const char *text, tess_line *line)
{
    char buffer[SIZE];
    tess_text why = tess_text_in(buffer, sizeof buffer);

    if (tess_line_read(text, line, &why) != TESS_OK) {
        print_error("\"%s\": %s\n", text, buffer);
        fail();
    }
}

/* ---- Generating ------------------------------------------------------------------------------ */

static void test_generate(void **state)
{
    static const char *const pieces[] = {" b0 ",
                                         " b1 ",
                                         " q0 ",
                                         " k0 ",
                                         " q1 ",
                                         " hk1 ",
                                         " d1 ",
                                         " d3 ",
                                         " d127 ",
                                         " d256 ",
                                         " dv",
                                         " f32",
                                         " f16",
                                         " bf16",
                                         " e4m3",
                                         " e5m2",
                                         " of=f32",
                                         " causal",
                                         " topleft",
                                         " window=0,",
                                         ",2147483647",
                                         "window=-1,",
                                         " scale=-",
                                         " scale=0 ",
                                         " scale=0.",
                                         " softcap=",
                                         " alibi",
                                         " sink",
                                         " bias",
                                         " bias=f16",
                                         " bias=bf16",
                                         " biasbcast=",
                                         " splits=1 ",
                                         " splits=128",
                                         " lensq=",
                                         " lensk=",
                                         "0x",
                                         " usedq=",
                                         " usedk=",
                                         " page=1 ",
                                         " page=3 ",
                                         " page=256",
                                         " index=i64",
                                         " deterministic",
                                         " invariant",
                                         " tf32",
                                         " spread",
                                         " gap=",
                                         " layout=bhsd",
                                         " layout=strided",
                                         " layout=sparse",
                                         " fill=nan",
                                         " fill=inf",
                                         " fill=equal",
                                         " fill=dominate",
                                         " fill=subnormal",
                                         " fill=holes",
                                         " fill=huge"};
    enum { PIECES = sizeof pieces / sizeof *pieces };
    int seen[PIECES] = {0};

    (void)state;
    for (uint64_t seed = 0; seed < 5000; seed++) {
        char text[SIZE];
        tess_line line, again;
        double pairs = 0;

        tess_generate_line(seed, &line);
        write_line(&line, text);
        read_line(text, &again);
        for (int i = 0; i < PIECES; i++)
            seen[i] += strstr(text, pieces[i]) != NULL;
        for (int64_t b = 0; b < line.batch; b++)
            pairs +=
                (double)tess_shape_used_rows(&line, b) * (double)tess_shape_used_columns(&line, b);
        assert_true(pairs * (double)line.heads_q * (double)(line.head_dim + line.head_dim_v + 16) <=
                    TESS_GENERATE_COST);
        assert_true(line.heads_kv > 0 && line.heads_q % line.heads_kv == 0);
    }
    for (int i = 0; i < PIECES; i++)
        if (seen[i] < 5) {
            print_error("\"%s\" was drawn %d times in 5000\n", pieces[i], seen[i]);
            fail();
        }
}

/* The interval of columns that some row sees, against a search. */
static void test_seen_columns(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 2000; seed++) {
        tess_line line;

        tess_generate_line(seed, &line);
        for (int64_t b = 0; b < line.batch; b++) {
            const int64_t rows = tess_shape_used_rows(&line, b);
            const int64_t columns = tess_shape_used_columns(&line, b);

            if (rows > 40 || columns > 40)
                continue;
            for (int64_t j = 0; j < columns + 2; j++) {
                bool is_seen = false;

                for (int64_t i = 0; i < rows && j < columns; i++) {
                    int64_t first, last;

                    tess_shape_reach(&line, b, i, &first, &last);
                    is_seen = is_seen || (j >= first && j <= last);
                }
                assert_int_equal(tess_shape_is_seen(&line, b, j), is_seen);
            }
        }
    }
}

/* ---- Shrinking ------------------------------------------------------------------------------- */

static bool always(void *user, const tess_line *line)
{
    (void)line;
    ++*(int *)user;
    return true;
}

static bool never(void *user, const tess_line *line)
{
    (void)line;
    ++*(int *)user;
    return false;
}

/* Where everything fails, nothing is left; where nothing smaller does, nothing changes. */
static void test_ends(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 300; seed++) {
        char before[SIZE], after[SIZE];
        tess_line line, small;
        int asked = 0, said;

        tess_generate_line(seed, &line);
        write_line(&line, before);
        small = line;
        said = tess_shrink(&small, never, &asked, 0);
        write_line(&small, after);
        assert_int_equal(said, asked);
        assert_in_range(asked, 0, 100);
        assert_string_equal(before, after);

        asked = 0;
        small = line;
        said = tess_shrink(&small, always, &asked, 10000);
        write_line(&small, after);
        assert_int_equal(said, asked);
        assert_in_range(asked, 1, 2000);
        if (line.batch > 0)
            assert_string_equal(after, "fwd b1 hq1 q0 k0 d1 f32");
        else
            assert_string_equal(after, "fwd b0 hq1 q0 k0 d1 f32");

        asked = 0;
        small = line;
        assert_in_range(tess_shrink(&small, always, &asked, 7), 1, 7);
        assert_in_range(asked, 1, 7);
    }
}

/* A fault with a threshold in three sizes and two options. */
static bool fails_from_here(void *user, const tess_line *line)
{
    (void)user;
    return line->seqlen_k >= 37 && line->head_dim >= 5 && line->heads_q / line->heads_kv >= 2 &&
           (line->mask & TESS_MASK_CAUSAL) && line->dtype == TESS_BF16;
}

static void test_finds_threshold(void **state)
{
    static const char *const lines[] = {
        "fwd b3 hq8 hk2 q97 k150 d64 bf16 causal window=5,0 alibi sink softcap=3 layout=strided "
        "fill=huge seed=77",
        "fwd b2 hq12 hk4 q10 k400 d100 dv7 bf16 of=f32 causal usedk=300,400 page=16 splits=5 "
        "bias=f16 biasbcast=bh scale=-2",
    };

    (void)state;
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        char text[SIZE];
        tess_line line;

        read_line(lines[i], &line);
        assert_true(fails_from_here(NULL, &line));
        tess_shrink(&line, fails_from_here, NULL, 0);
        write_line(&line, text);
        assert_string_equal(text, "fwd b1 hq2 hk1 q0 k37 d5 dv1 bf16 causal");
    }
}

/* A fault that needs one sequence of a batch. */
static bool has_long_sequence(void *user, const tess_line *line)
{
    (void)user;
    for (int64_t b = 0; b < line->batch; b++)
        if (line->lens_q.runs && tess_shape_used_rows(line, b) >= 20 &&
            tess_shape_used_columns(line, b) == 0)
            return true;
    return false;
}

static void test_finds_sequence(void **state)
{
    char text[SIZE];
    tess_line line;

    (void)state;
    read_line("fwd hq4 d32 f16 lensq=3,70,0,64,9 lensk=5,30,7,0,1 usedk=5,3,7,0,1 gap=2 causal",
              &line);
    assert_true(has_long_sequence(NULL, &line));
    tess_shrink(&line, has_long_sequence, NULL, 0);
    write_line(&line, text);
    assert_string_equal(text, "fwd hq1 k0 d1 f32 lensq=20");
}

/* Faults without rhyme or reason: what comes out still fails, and can be read. */
static bool fails_by_chance(void *user, const tess_line *line)
{
    char text[SIZE];
    uint64_t hash = *(const uint64_t *)user;

    write_line(line, text);
    for (const char *c = text; *c; c++)
        hash = tess_random_mix(hash, (uint64_t)*c);
    return hash % 3 == 0;
}

static void test_stays_a_failure(void **state)
{
    int shrunk = 0;

    (void)state;
    for (uint64_t seed = 0; seed < 600; seed++) {
        char text[SIZE];
        tess_line line, again;
        uint64_t salt = seed;

        tess_generate_line(seed, &line);
        if (!fails_by_chance(&salt, &line))
            continue;
        tess_shrink(&line, fails_by_chance, &salt, 0);
        assert_true(fails_by_chance(&salt, &line));
        write_line(&line, text);
        read_line(text, &again);
        assert_true(fails_by_chance(&salt, &again));
        shrunk++;
    }
    assert_true(shrunk > 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_generate),       cmocka_unit_test(test_seen_columns),
        cmocka_unit_test(test_ends),           cmocka_unit_test(test_finds_threshold),
        cmocka_unit_test(test_finds_sequence), cmocka_unit_test(test_stays_a_failure),
    };
    const int failed = cmocka_run_group_tests_name("kit_shrink", tests, NULL, NULL);

    return failed != 0;
}
