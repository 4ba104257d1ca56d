/* SPDX-License-Identifier: Apache-2.0
 * What the oracle's forward, backward and naive passes share: one row's scores and weights. */
#ifndef TESSERA_TESTS_KIT_ORACLE_ROW_H
#define TESSERA_TESTS_KIT_ORACLE_ROW_H

#include "tests/kit/oracle.h"

/* The inputs that both kinds of arguments have. */
typedef struct tess_oracle_inputs {
    tess_in q, k, v;
    tess_in cu_seqlens_q, cu_seqlens_k, seqused_q, seqused_k, page_table;
    tess_in bias, alibi_slopes, sink;
    tess_in q_descale, k_descale, v_descale;
} tess_oracle_inputs;

/* A problem, and room for one (sequence, key head) and one row of it. */
typedef struct tess_oracle_work {
    const tess_attention_desc *desc;
    tess_oracle_inputs in;
    tess_oracle_fault fault;
    int64_t sequences, heads_q, heads_kv, group, dim, dim_v, max_columns;
    double scale, softcap;

    /* The sequence and key head at hand. */
    int64_t sequence, kv_head;
    int64_t q_batch, q_start, rows;    /* where its rows are, how many are used */
    int64_t k_batch, k_start, columns; /* the same for columns, when not paged */
    int64_t offset;                    /* D */
    double *k_turned;                  /* (dim, columns): turned so that dots run over columns */
    double *k, *v;     /* (columns, dim), (columns, dim_v); k in the backward only */
    double *v_largest; /* of each column, finite values only */

    /* The row at hand, over its admitted columns. */
    int64_t row, head, count;
    double *q;       /* dim */
    double *dots;    /* columns */
    double *sizes;   /* columns: sums of |q_d k_d| */
    double *squares; /* columns: sums over d of the square of the dot so far; backward only */
    int64_t *column; /* count */
    double *raw;     /* scaled, before softcap */
    double *score;
    double *weight; /* exp(score - max), not divided */
    double max, sum, lse, magnitude, lead, sink;
    double walk;    /* largest root of squares, scaled */
    int64_t leader; /* index of the column with the largest score, -1 for none */
    bool has_sink, is_nan;
} tess_oracle_work;

/* Prepares; false when memory ran out (release in both cases). wants_k fills work->k too. */
bool tess_oracle_begin(tess_oracle_work *work, const tess_attention_desc *desc,
                       const tess_oracle_inputs *inputs, const tess_oracle_fault *fault,
                       bool wants_k);
void tess_oracle_end(tess_oracle_work *work);

/* Chooses a sequence (its place and lengths), then loads K and V of one key head. */
void tess_oracle_take_sequence(tess_oracle_work *work, int64_t sequence);
void tess_oracle_take_head(tess_oracle_work *work, int64_t kv_head);

/* Scores, weights and LSE of row `row` of the sequence, for query head `head`. */
void tess_oracle_take_row(tess_oracle_work *work, int64_t row, int64_t head);

/* Reads `count` elements of a tensor along the head dimension, multiplied by `factor`. */
void tess_oracle_read(const tess_layout *layout, tess_in tensor, int64_t batch, int64_t seqlen,
                      int64_t head, double factor, double *out);

/* Key head of a query head. */
int64_t tess_oracle_key_head(const tess_oracle_work *work, int64_t head);

/* Page and slot (or batch and row) where column j of the current sequence lies. */
void tess_oracle_place(const tess_oracle_work *work, int64_t column, int64_t *out_batch,
                       int64_t *out_seqlen);

/* Bias and slope of a score; 0 where there is none. */
double tess_oracle_bias(const tess_oracle_work *work, int64_t head, int64_t row, int64_t column);
double tess_oracle_slope(const tess_oracle_work *work, int64_t head);

/* Naive attention for the row at hand, into dim_v values: products of storage values added up in
 * fp32, the softmax rounded to the storage type, the result rounded to O's type. */
void tess_oracle_naive_row(const tess_oracle_work *work, float *scratch, double *out);

/* Elements of scratch tess_oracle_naive_row() needs. */
int64_t tess_oracle_naive_scratch(const tess_oracle_work *work);

/* Sums of a naive backward pass over the rows of one key head, in fp32. */
typedef struct tess_oracle_naive_sums {
    float *scratch; /* of tess_oracle_naive_scratch() elements */
    float *o;       /* dim_v */
    float *dq;      /* dim: of the last row, rounded */
    float *dk, *dv; /* (columns, dim), (columns, dim_v): not rounded */
} tess_oracle_naive_sums;

/* Adds the row at hand: P and dS rounded to the storage type, as is O before dot(dO, O). */
void tess_oracle_naive_backward_row(const tess_oracle_work *work, const double *d_o, double d_lse,
                                    tess_oracle_naive_sums *sums);

#endif
