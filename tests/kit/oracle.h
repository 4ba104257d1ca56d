/* SPDX-License-Identifier: Apache-2.0
 * Attention in float64 with materialised scores: the reference that shares no code with the
 * library.
 *
 * It reads the public descriptor and host memory, follows the definition line by line, and knows
 * nothing of tiles, splits or running maxima. It trusts its arguments: index arrays and extents
 * must be right. */
#ifndef TESSERA_TESTS_KIT_ORACLE_H
#define TESSERA_TESTS_KIT_ORACLE_H

#include <stdbool.h>
#include <stdint.h>
#include <tessera/attention.h>

/* Mistakes made on purpose, so that the tests can be tested. All zero: none. */
typedef struct tess_oracle_fault {
    int64_t drop_columns;   /* the last columns of every sequence are not there */
    int64_t shift_mask;     /* added to D in causal and window rules */
    int64_t forget_rescale; /* columns per tile; sums of earlier tiles keep their old maximum */
    bool interleave_heads;  /* query head h reads key head h % heads_kv */
    bool absent_is_zero;    /* absent columns count with a score of 0 */
    bool cap_after_bias;    /* softcap applied to the finished score */
    bool alibi_from_start;  /* ALiBi distances without D */
    bool drop_sink_sum;     /* the sink counts twice */

    /* Of the backward pass. */
    bool forget_delta;     /* g = P dP */
    bool forget_cap_slope; /* the softcap's derivative is 1 */
    bool forget_scale;     /* dQ and dK without softmax_scale, P with it */
    bool forget_group;     /* dK and dV of the last query head of a group alone */
} tess_oracle_fault;

/* How much to compute. All zero: everything, without the naive reference. */
typedef struct tess_oracle_options {
    double budget;    /* multiply-adds after which rows are sampled instead; 0: no limit */
    bool wants_naive; /* fill naive_error */
    const tess_oracle_fault *fault;
} tess_oracle_options;

enum {
    TESS_ROW_UNUSED = 0, /* past the used length: nothing may be written */
    TESS_ROW_KNOWN = 1,  /* computed here */
    TESS_ROW_SKIPPED = 2 /* must be written, but the budget left it out */
};

/* What is known of one row of one query head. */
typedef struct tess_oracle_row {
    double lse;
    double magnitude;    /* largest size of a score of the row on its way, before cancellation:
                            scale * sum |q_d k_d|, ALiBi's and the bias's parts, the sink */
    double value_scale;  /* largest absolute finite value that an admitted V holds */
    double lead;         /* largest score minus the next (the sink counts); infinity when alone */
    int64_t columns;     /* columns admitted */
    int32_t state;       /* TESS_ROW_... */
    int32_t sole_column; /* the column whose score is the largest; -1: none, or the sink */
} tess_oracle_row;

/* Result of a forward pass. Row (b, s, h) is row[(b * seqlen + s) * heads + h], and so on for o;
 * extents are those of the descriptor's o, so that packed sequences are one batch. */
typedef struct tess_oracle {
    int64_t batch, seqlen, heads, head_dim_v;
    double *o;
    tess_oracle_row *row;
    double naive_error; /* largest error of naive attention in the storage type, fp32 sums */
    int64_t known;      /* rows computed */
} tess_oracle;

/* False when memory ran out; *out is then all zero. */
bool tess_oracle_forward(const tess_attention_desc *desc, const tess_forward_args *args,
                         const tess_oracle_options *options, tess_oracle *out);
void tess_oracle_release(tess_oracle *oracle);

/* One gradient. It exists when its bit is in `wanted` of tess_gradient_desc (0: dq, dk, dv).
 *
 * magnitude is the sum of absolute values of what was added up, the size before cancellation that
 * tolerances of gradients are measured against. What only a row as a whole is known by is kept once
 * per row, a row being what the last axis runs over. */
typedef struct tess_oracle_gradient {
    int64_t extent[4]; /* of dq, dk, dv: batch, seqlen, heads, dim; of dbias: b, h, i, j, where 1
                          stands for an axis that is summed; of dslope: b, h, 1, 1, where b is 1
                          when sequences share their slopes; dsink: h, 1, 1, 1 */
    double *value, *magnitude; /* packed in the order of extent; NULL when not wanted */

    double *scores;    /* per row: largest size of a score before cancellation, plus that of LSE,
                          of any row of Q that takes part */
    double *underflow; /* per row: what fp32 may lose of the sum below its least numbers */
    bool *is_known;    /* per row: not left out by the budget */
} tess_oracle_gradient;

typedef struct tess_oracle_gradients {
    tess_oracle_gradient dq, dk, dv, dbias, dslope, dsink;
    double score_magnitude;              /* largest |score| and |LSE| of any row */
    double naive_dq, naive_dk, naive_dv; /* largest errors of naive attention's gradients;
                                            negative: not asked for */
    int64_t known;                       /* rows of dq computed */
} tess_oracle_gradients;

/* Gradients of sum(O * dO) + sum(LSE * dLSE), computed from Q, K and V: o and lse of the arguments
 * are not read. Ignores the descriptors' layouts of outputs. Beyond a budget whole (sequence, key
 * head) pairs are left out, and of pairs that are too long by themselves all but some rows of dq.
 *
 * options  NULL: everything, without the naive reference
 *
 * False when memory ran out; *out is then all zero. */
bool tess_oracle_backward(const tess_attention_desc *desc, const tess_gradient_desc *gradients,
                          const tess_backward_args *args, const tess_oracle_options *options,
                          tess_oracle_gradients *out);
void tess_oracle_gradients_release(tess_oracle_gradients *gradients);

/* Multiply-adds of the forward pass over used lengths, masks not considered. */
double tess_oracle_cost(const tess_attention_desc *desc, const tess_forward_args *args);

#endif
