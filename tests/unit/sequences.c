/* SPDX-License-Identifier: Apache-2.0
 * Sequences of one run: where each lies, what of the index arrays is read, how many there may be.
 */
#include "backends/cpu/sequences.h"

#include "tests/kit/random.h"
#include "tests/unit/support.h"

#include <math.h>
#include <sys/mman.h>
#include <unistd.h>

/* ---- Memory that ends at a wall -------------------------------------------------------------- */

typedef struct walled {
    char *map, *data;
    size_t size; /* of the map */
} walled;

/* `size` bytes with a page behind them that nobody may touch. */
static walled walled_make(const void *bytes, size_t size)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const size_t room = (size + page - 1) / page * page;
    walled w = {.size = room + page};
    FILE *const zero = fopen("/dev/zero", "r+");

    assert_non_null(zero);
    w.map = mmap(NULL, w.size, PROT_READ | PROT_WRITE, MAP_PRIVATE, fileno(zero), 0);
    fclose(zero);
    assert_true(w.map != MAP_FAILED);
    assert_int_equal(mprotect(w.map + room, page, PROT_NONE), 0);
    w.data = w.map + room - size;
    memcpy(w.data, bytes, size);
    return w;
}

static void walled_free(walled *w)
{
    munmap(w->map, w->size);
}

/* ---- One sequence ---------------------------------------------------------------------------- */

static tess_args args_of(uint32_t varlen, int64_t sequences)
{
    return (tess_args){.sequences = sequences,
                       .rows = 6,
                       .columns = 9,
                       .total_rows = 20,
                       .total_columns = 30,
                       .varlen = varlen};
}

static void assert_sequence(const tess_args *args, const tess_address *addresses, int64_t index,
                            tess_cpu_sequence wanted)
{
    const tess_cpu_sequence s = tess_cpu_sequence_at(args, addresses, index);

    assert_int_equal(s.batch, wanted.batch);
    assert_int_equal(s.batch_k, wanted.batch_k);
    assert_int_equal(s.first_row, wanted.first_row);
    assert_int_equal(s.first_column, wanted.first_column);
    assert_int_equal(s.rows, wanted.rows);
    assert_int_equal(s.columns, wanted.columns);
}

static void a_sequence_lies_where_the_arrays_say(void **state)
{
    int32_t cu_q[] = {0, 3, 3, 9}, cu_k[] = {2, 7, 11, 11}, used_q[] = {2, 0, 6},
            used_k[] = {5, 1, 0};
    int64_t wide_q[] = {0, 3, 3, 9};
    tess_address at[TESS_AT_COUNT] = {[TESS_AT_CU_SEQLENS_Q] = {cu_q, 0},
                                      [TESS_AT_CU_SEQLENS_K] = {cu_k, 0},
                                      [TESS_AT_SEQUSED_Q] = {used_q, 0},
                                      [TESS_AT_SEQUSED_K] = {used_k, 0}};
    tess_args args = args_of(0, 3);

    (void)state;
    assert_sequence(&args, at, 2, (tess_cpu_sequence){2, 2, 0, 0, 6, 9});
    args.varlen = TESS_VARLEN_CU_SEQLENS_Q;
    assert_sequence(&args, at, 1, (tess_cpu_sequence){0, 1, 3, 0, 0, 9});
    assert_sequence(&args, at, 2, (tess_cpu_sequence){0, 2, 3, 0, 6, 9});
    args.varlen = TESS_VARLEN_CU_SEQLENS_K;
    assert_sequence(&args, at, 1, (tess_cpu_sequence){1, 0, 0, 7, 6, 4});
    args.varlen = TESS_VARLEN_SEQUSED_Q | TESS_VARLEN_SEQUSED_K;
    assert_sequence(&args, at, 0, (tess_cpu_sequence){0, 0, 0, 0, 2, 5});
    args.varlen = 15;
    assert_sequence(&args, at, 2, (tess_cpu_sequence){0, 0, 3, 11, 6, 0});
    at[TESS_AT_CU_SEQLENS_Q].base = wide_q;
    args.varlen = TESS_VARLEN_CU_SEQLENS_Q;
    args.index_is_64 = 1;
    assert_sequence(&args, at, 2, (tess_cpu_sequence){0, 2, 3, 0, 6, 9});
}

/* ---- The order of work ----------------------------------------------------------------------- */

static int log2_of_work(const tess_cpu_sequence *s)
{
    const int64_t work = s->rows * s->columns;

    return work ? (int)floor(log2((double)work)) : -1;
}

static void long_sequences_are_picked_up_first(void **state)
{
    enum { MOST = 40 };
    tess_random random = tess_random_start(7, 1);

    (void)state;
    for (int round = 0; round < 2000; round++) {
        int32_t used_q[MOST], used_k[MOST];
        int64_t order[MOST];
        bool is_there[MOST] = {false};
        const int64_t count = tess_random_below(&random, MOST);
        const tess_address at[TESS_AT_COUNT] = {
            [TESS_AT_SEQUSED_Q] = {used_q, 0}, [TESS_AT_SEQUSED_K] = {used_k, 0}};
        const tess_args args = args_of(TESS_VARLEN_SEQUSED_Q | TESS_VARLEN_SEQUSED_K, count);
        int before = 64;

        for (int64_t i = 0; i < count; i++) {
            used_q[i] = (int32_t)tess_random_below(&random, round % 2 ? 7 : 2);
            used_k[i] = (int32_t)tess_random_below(&random, round % 3 ? 10 : 1 << 20);
        }
        tess_cpu_order_sequences(&args, at, order);
        for (int64_t i = 0; i < count; i++) {
            assert_in_range(order[i], 0, count - 1);
            assert_false(is_there[order[i]]);
            is_there[order[i]] = true;
            const tess_cpu_sequence s = tess_cpu_sequence_at(&args, at, order[i]);
            assert_true(log2_of_work(&s) <= before);
            if (log2_of_work(&s) == before)
                assert_true(order[i] > order[i - 1]); /* equal ones as they come */
            before = log2_of_work(&s);
        }
    }
}

/* ---- Checks -------------------------------------------------------------------------------- */

static tess_status check(const tess_args *args, const tess_address *addresses)
{
    return tess_cpu_sequences_check(NULL, "tess_plan_run_forward", args, addresses);
}

/* Starts above 0, ends below the total, gaps by used lengths. */
static void gaps_are_fine(void **state)
{
    int32_t cu[] = {4, 8, 8, 13}, used[] = {3, 0, 1};
    const tess_address at[TESS_AT_COUNT] = {
        [TESS_AT_CU_SEQLENS_Q] = {cu, 0}, [TESS_AT_SEQUSED_Q] = {used, 0}};
    const tess_args args = args_of(TESS_VARLEN_CU_SEQLENS_Q | TESS_VARLEN_SEQUSED_Q, 3);

    (void)state;
    assert_fine(NULL, check(&args, at));
    cu[3] = 20;
    assert_int_equal(check(&args, at), TESS_INVALID); /* 12 rows where 6 are the bound */
    cu[2] = 14;
    cu[1] = 10;
    assert_fine(NULL, check(&args, at));
}

static void no_sequence_needs_no_array(void **state)
{
    const tess_address nowhere[TESS_AT_COUNT] = {{NULL, 0}};
    const tess_args args = args_of(15, 0);

    (void)state;
    assert_fine(NULL, check(&args, nowhere));
}

/* Neither the checks nor the kernels look behind the last entry, and of a page table not at what
 * no used column needs. */
static void nothing_is_read_behind_the_arrays(void **state)
{
    enum { SEQUENCES = 6, TOTAL = 321, PAGES = 5, PAGE = 4, MOST = 3 };
    static const int32_t cu[] = {0, 1, 1, 130, 257, 257, 322 - 1};
    static const int32_t used[] = {1, 0, 129, 127, 0, 64};
    static const int32_t table[] = {4, 2, 0, /* 3 of the second row */ 1};
    static const int32_t used_pages[] = {10, 4};
    static float q[TOTAL * 8], o[TOTAL * 8], pool[PAGES * PAGE * 8];
    const tess_layout flat = tess_layout_packed(TESS_F32, 1, TOTAL, 1, 8);
    const tess_layout paged = tess_layout_packed(TESS_F32, PAGES, PAGE, 1, 8);
    const tess_layout two = tess_layout_packed(TESS_F32, 2, 3, 1, 8);
    walled cu_wall = walled_make(cu, sizeof cu), used_wall = walled_make(used, sizeof used);
    walled table_wall = walled_make(table, sizeof table);
    walled pages_wall = walled_make(used_pages, sizeof used_pages);
    tess_plan *plan = NULL;
    world w;

    (void)state;
    world_open(&w, 2);
    draw_all(q, TOTAL * 8, 1);
    draw_all(pool, PAGES * PAGE * 8, 2);

    const tess_varlen varlen = {TESS_STRUCT(tess_varlen), .sequences = SEQUENCES,
                                .max_seqlen_q = 129, .max_seqlen_k = 129, .present = 15};
    const tess_attention_desc packed = {TESS_STRUCT(tess_attention_desc),
                                        .q = flat,
                                        .k = flat,
                                        .v = flat,
                                        .o = flat,
                                        .varlen = &varlen};
    const tess_forward_args args = {TESS_STRUCT(tess_forward_args),
                                    .q = {q, 0},
                                    .k = {q, 0},
                                    .v = {q, 0},
                                    .o = {o, 0},
                                    .cu_seqlens_q = {cu_wall.data, 0},
                                    .cu_seqlens_k = {cu_wall.data, 0},
                                    .seqused_q = {used_wall.data, 0},
                                    .seqused_k = {used_wall.data, 0}};
    assert_fine(w.context, tess_plan_create_forward(w.device, &packed, &plan));
    assert_fine(w.context, tess_plan_run_forward(plan, w.queue, &args));
    tess_plan_destroy(plan);

    const tess_varlen lengths = {TESS_STRUCT(tess_varlen), .sequences = 2,
                                 .present = TESS_VARLEN_SEQUSED_K};
    const tess_paging paging = {TESS_STRUCT(tess_paging), .max_pages = MOST};
    const tess_attention_desc desc = {TESS_STRUCT(tess_attention_desc),
                                      .q = two,
                                      .k = paged,
                                      .v = paged,
                                      .o = two,
                                      .varlen = &lengths,
                                      .paging = &paging};
    const tess_forward_args paged_args = {TESS_STRUCT(tess_forward_args),
                                          .q = {q, 0},
                                          .k = {pool, 0},
                                          .v = {pool, 0},
                                          .o = {o, 0},
                                          .seqused_k = {pages_wall.data, 0},
                                          .page_table = {table_wall.data, 0}};
    plan = NULL;
    assert_fine(w.context, tess_plan_create_forward(w.device, &desc, &plan));
    assert_fine(w.context, tess_plan_run_forward(plan, w.queue, &paged_args));
    tess_plan_destroy(plan);
    world_close(&w);
    walled_free(&cu_wall);
    walled_free(&used_wall);
    walled_free(&table_wall);
    walled_free(&pages_wall);
}

/* ---- Gaps between sequences ------------------------------------------------------------------ */

/* Starts 0, 4, 8; lengths 3, 2, 4; what lies between is NaN and stays as it is. */
static void gap_rows_are_neither_read_nor_written(void **state)
{
    enum { ROWS = 13, DIM = 8, SEQUENCES = 3 };
    static const int32_t cu[] = {0, 4, 8, 13}, used[] = {3, 2, 4};
    static float q[ROWS * DIM], o[ROWS * DIM], lse[ROWS], alone[ROWS * DIM], alone_lse[ROWS];
    const tess_layout shape = tess_layout_packed(TESS_F32, 1, ROWS, 1, DIM);
    const tess_varlen varlen = {TESS_STRUCT(tess_varlen), .sequences = SEQUENCES, .max_seqlen_q = 5,
                                .max_seqlen_k = 5, .present = 15};
    const tess_attention_desc desc = {TESS_STRUCT(tess_attention_desc),
                                      .q = shape,
                                      .k = shape,
                                      .v = shape,
                                      .o = shape,
                                      .mask = TESS_MASK_CAUSAL,
                                      .flags = TESS_BATCH_INVARIANT,
                                      .varlen = &varlen};
    const tess_forward_args args = {TESS_STRUCT(tess_forward_args),
                                    .q = {q, 0},
                                    .k = {q, 0},
                                    .v = {q, 0},
                                    .o = {o, 0},
                                    .lse = {lse, 0},
                                    .cu_seqlens_q = {cu, 0},
                                    .cu_seqlens_k = {cu, 0},
                                    .seqused_q = {used, 0},
                                    .seqused_k = {used, 0}};
    tess_plan *plan = NULL;
    world w;

    (void)state;
    world_open(&w, 2);
    for (int i = 0; i < ROWS * DIM; i++)
        q[i] = NAN;
    for (int s = 0; s < SEQUENCES; s++)
        draw_all(q + cu[s] * DIM, (size_t)(used[s] * DIM), (uint64_t)s);
    memset(o, 0x5a, sizeof o);
    memset(lse, 0x5a, sizeof lse);
    memset(alone, 0x5a, sizeof alone);
    memset(alone_lse, 0x5a, sizeof alone_lse);
    assert_fine(w.context, tess_plan_create_forward(w.device, &desc, &plan));
    assert_fine(w.context, tess_plan_run_forward(plan, w.queue, &args));
    tess_plan_destroy(plan);
    for (int s = 0; s < SEQUENCES; s++) {
        const tess_layout one = tess_layout_packed(TESS_F32, 1, used[s], 1, DIM);
        const tess_attention_desc single = {TESS_STRUCT(tess_attention_desc),
                                            .q = one,
                                            .k = one,
                                            .v = one,
                                            .o = one,
                                            .mask = TESS_MASK_CAUSAL,
                                            .flags = TESS_BATCH_INVARIANT};
        const float *const at = q + cu[s] * DIM;
        const tess_forward_args its = {TESS_STRUCT(tess_forward_args),
                                       .q = {at, 0},
                                       .k = {at, 0},
                                       .v = {at, 0},
                                       .o = {alone + cu[s] * DIM, 0},
                                       .lse = {alone_lse + cu[s], 0}};
        plan = NULL;
        assert_fine(w.context, tess_plan_create_forward(w.device, &single, &plan));
        assert_fine(w.context, tess_plan_run_forward(plan, w.queue, &its));
        tess_plan_destroy(plan);
    }
    assert_memory_equal(o, alone, sizeof o); /* gap rows: the pattern in both */
    assert_memory_equal(lse, alone_lse, sizeof lse);
    world_close(&w);
}

/* ---- Very many sequences --------------------------------------------------------------------- */

/* A batch of one head, dense or packed. */
typedef struct crowd {
    int64_t rows, columns; /* of each sequence */
    int64_t splits;
    float *q, *k;
    int32_t *cu_q, *cu_k;
} crowd;

enum { CROWD_DIM = 4 };

/* Rows of each of `sequences` sequences, from number `first` on, attend to their own keys. */
static void run_crowd(world *w, const crowd *c, int64_t first, int64_t sequences, bool is_packed,
                      float *o)
{
    const int64_t batch = is_packed ? 1 : sequences, times = is_packed ? sequences : 1;
    const tess_varlen varlen = {TESS_STRUCT(tess_varlen), .sequences = sequences,
                                .max_seqlen_q = c->rows, .max_seqlen_k = c->columns,
                                .present = TESS_VARLEN_CU_SEQLENS_Q | TESS_VARLEN_CU_SEQLENS_K};
    tess_attention_desc desc = {
        TESS_STRUCT(tess_attention_desc),
        .q = tess_layout_packed(TESS_F32, batch, times * c->rows, 1, CROWD_DIM),
        .k = tess_layout_packed(TESS_F32, batch, times * c->columns, 1, CROWD_DIM),
        .mask = TESS_MASK_CAUSAL,
        .flags = TESS_BATCH_INVARIANT,
        .num_splits = c->splits,
        .varlen = is_packed ? &varlen : NULL};
    const float *const k = c->k + first * c->columns * CROWD_DIM;
    tess_forward_args args = {TESS_STRUCT(tess_forward_args),
                              .q = {c->q + first * c->rows * CROWD_DIM, 0}, .k = {k, 0},
                              .v = {k, 0}, .o = {o, 0}};
    tess_plan *plan = NULL;

    desc.v = desc.k;
    desc.o = desc.q;
    if (is_packed) {
        args.cu_seqlens_q.base = c->cu_q;
        args.cu_seqlens_k.base = c->cu_k;
    }
    assert_fine(w->context, tess_plan_create_forward(w->device, &desc, &plan));
    assert_fine(w->context, tess_plan_run_forward(plan, w->queue, &args));
    tess_plan_destroy(plan);
}

static void crowd_make(crowd *c, int64_t sequences, int64_t rows, int64_t columns, int64_t splits)
{
    const size_t q_count = (size_t)(sequences * rows * CROWD_DIM);
    const size_t k_count = (size_t)(sequences * columns * CROWD_DIM);
    const size_t ends = (size_t)(sequences + 1) * sizeof(int32_t);

    *c = (crowd){rows,
                 columns,
                 splits,
                 malloc(q_count * sizeof(float)),
                 malloc(k_count * sizeof(float)),
                 malloc(ends),
                 malloc(ends)};
    assert_true(c->q && c->k && c->cu_q && c->cu_k);
    draw_all(c->q, q_count, 17);
    draw_all(c->k, k_count, 18);
    for (int64_t i = 0; i <= sequences; i++) {
        c->cu_q[i] = (int32_t)(i * rows);
        c->cu_k[i] = (int32_t)(i * columns);
    }
}

/* Counts beyond 16 bits, which is where a GPU's grid ends. */
static void check_crowd(int64_t sequences, int64_t rows, int64_t columns, int64_t splits)
{
    const size_t row_bytes = (size_t)rows * CROWD_DIM * sizeof(float);
    float *const dense = calloc((size_t)sequences, row_bytes);
    float *const packed = calloc((size_t)sequences, row_bytes), *const alone = malloc(row_bytes);
    crowd c;
    world w;

    assert_true(dense && packed && alone);
    crowd_make(&c, sequences, rows, columns, splits);
    world_open(&w, 2);
    run_crowd(&w, &c, 0, sequences, false, dense);
    run_crowd(&w, &c, 0, sequences, true, packed);
    assert_memory_equal(dense, packed, (size_t)sequences * row_bytes);
    for (int64_t i = 0; i < 64; i++) { /* the first, the last, those around 2^16, and between */
        const int64_t s = i == 0   ? 0
                          : i == 1 ? sequences - 1
                          : i < 5  ? 65533 + i
                                   : i * (sequences - 1) / 64;

        if (s >= sequences)
            continue;
        run_crowd(&w, &c, s, 1, false, alone);
        assert_memory_equal(alone, dense + s * rows * CROWD_DIM, row_bytes);
    }
    world_close(&w);
    free(c.q);
    free(c.k);
    free(c.cu_q);
    free(c.cu_k);
    free(dense);
    free(packed);
    free(alone);
}

static void more_sequences_than_sixteen_bits(void **state)
{
    (void)state;
    check_crowd(65536, 4, 4, 0);
    check_crowd(70001, 1, 100, 2);
    check_crowd(80000, 16, 16, 0);
}

/* ---- A packed batch and its sequences alone -------------------------------------------------- */

/* Kernels for short and for long problems lie between these lengths: whichever is chosen, the bits
 * of a sequence are its own. */
static void check_company(tess_dtype dtype, int64_t dim)
{
    enum { SEQUENCES = 6, MOST = 2100 };
    static const int32_t lens[] = {1, 2, 7, 40, MOST, 3};
    int32_t cu[SEQUENCES + 1] = {0};
    const size_t size = tess_dtype_size(dtype);
    world w;

    for (int i = 0; i < SEQUENCES; i++)
        cu[i + 1] = cu[i] + lens[i];

    const int64_t total = cu[SEQUENCES];
    const size_t bytes = (size_t)(total * 2 * dim) * size;
    char *const q = malloc(bytes), *const o = calloc(1, bytes), *const alone = calloc(1, bytes);
    const tess_layout shape = tess_layout_packed(dtype, 1, total, 2, dim);
    const tess_varlen varlen = {TESS_STRUCT(tess_varlen), .sequences = SEQUENCES,
                                .max_seqlen_q = MOST, .max_seqlen_k = MOST,
                                .present = TESS_VARLEN_CU_SEQLENS_Q | TESS_VARLEN_CU_SEQLENS_K};
    tess_attention_desc desc = {
        TESS_STRUCT(tess_attention_desc), .q = shape,       .k = shape, .v = shape, .o = shape,
        .flags = TESS_BATCH_INVARIANT,    .varlen = &varlen};
    tess_forward_args args = {TESS_STRUCT(tess_forward_args),
                              .q = {q, 0},
                              .k = {q, 0},
                              .v = {q, 0},
                              .o = {o, 0},
                              .cu_seqlens_q = {cu, 0},
                              .cu_seqlens_k = {cu, 0}};
    tess_plan *plan = NULL;

    assert_true(q && o && alone);
    for (size_t i = 0; i < (size_t)(total * 2 * dim); i++) {
        const float value = drawn(5, i);
        uint32_t bits;
        memcpy(&bits, &value, sizeof bits);
        /* the upper half of a float is a bf16; as an f16 it is some number below 2 */
        const uint16_t half = (uint16_t)(dtype == TESS_BF16 ? bits >> 16 : bits >> 16 & 0xbbff);
        memcpy(q + i * size, dtype == TESS_F32 ? (const void *)&value : (const void *)&half, size);
    }
    world_open(&w, 2);
    assert_fine(w.context, tess_plan_create_forward(w.device, &desc, &plan));
    assert_fine(w.context, tess_plan_run_forward(plan, w.queue, &args));
    tess_plan_destroy(plan);
    for (int i = 0; i < SEQUENCES; i++) {
        const int64_t offset = cu[i] * 2 * dim * (int64_t)size;
        desc.q = desc.k = desc.v = desc.o = tess_layout_packed(dtype, 1, lens[i], 2, dim);
        desc.varlen = NULL;
        args = (tess_forward_args){TESS_STRUCT(tess_forward_args), .q = {q, offset},
                                   .k = {q, offset}, .v = {q, offset}, .o = {alone, offset}};
        plan = NULL;
        assert_fine(w.context, tess_plan_create_forward(w.device, &desc, &plan));
        assert_fine(w.context, tess_plan_run_forward(plan, w.queue, &args));
        tess_plan_destroy(plan);
        if (memcmp(o + offset, alone + offset, (size_t)(lens[i] * 2 * dim) * size) != 0)
            fail_msg("%s d%d: the sequence of %d rows has other bits in company",
                     tess_dtype_name(dtype), (int)dim, lens[i]);
    }
    world_close(&w);
    free(q);
    free(o);
    free(alone);
}

static void company_changes_no_bit_when_that_is_promised(void **state)
{
    (void)state;
    check_company(TESS_F32, 8);
    check_company(TESS_F32, 33);
    check_company(TESS_F16, 16);
    check_company(TESS_BF16, 64);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_sequence_lies_where_the_arrays_say),
        cmocka_unit_test(long_sequences_are_picked_up_first),
        cmocka_unit_test(gaps_are_fine),
        cmocka_unit_test(no_sequence_needs_no_array),
        cmocka_unit_test(nothing_is_read_behind_the_arrays),
        cmocka_unit_test(gap_rows_are_neither_read_nor_written),
        cmocka_unit_test(more_sequences_than_sixteen_bits),
        cmocka_unit_test(company_changes_no_bit_when_that_is_promised),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);

    return failed != 0;
}
